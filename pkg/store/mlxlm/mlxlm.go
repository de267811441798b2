// Package mlxlm writes the static level of a packed store as a folder that
// mlx-lm loads: what each op computes with when nothing is escalated.
//
// Codes, scales and biases go over bit for bit: a store has MLX's layout. The
// experts of a layer are one tensor there, so codes of fewer bits or larger
// groups than their neighbours' are widened, which changes no value.
package mlxlm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/store"
)

// families are those whose tensors mlx-lm keeps as transformers does.
var families = []string{"llama", "mistral", "qwen2", "qwen3", "qwen3_moe"}

// WeightsFile is the file of tensors.
const WeightsFile = "model.safetensors"

// UnfitError is the refusal of a store that mlx-lm has no form for.
type UnfitError struct{ Path, Reason string }

func (e *UnfitError) Error() string { return e.Path + ": " + e.Reason }

// ExitCode is that of a "no".
func (e *UnfitError) ExitCode() int { return 1 }

// Options say what to export.
type Options struct {
	Plan     string            // name of the plan, "" for the first
	Progress func(bytes int64) // called with the bytes of each record that is done; may be nil
}

// Summary tells what was written.
type Summary struct {
	Tensors int
	Bytes   int64    // of all tensors
	Widened []string // modules some of whose experts have wider codes than in the store
}

// Export writes the folder dir, which must not exist. It appears when all is
// written and durable; until then the files are in dir.partial, which an error
// removes. Memory holds one record at a time.
func Export(ctx context.Context, s *store.Store, dir string, opt Options) (*Summary, error) {
	if _, err := os.Lstat(dir); err == nil {
		return nil, &store.ExistsError{Path: dir, Reason: "is there already: remove it, or choose another name"}
	}
	e, err := newExport(s, opt)
	if err != nil {
		return nil, err
	}
	partial := filepath.Clean(dir) + ".partial"
	if err := os.Mkdir(partial, 0o777); errors.Is(err, fs.ErrExist) {
		return nil, &store.ExistsError{Path: partial, Reason: "is of an export that did not end: remove it"}
	} else if err != nil {
		return nil, err
	}
	err = e.write(ctx, partial)
	if err == nil {
		err = os.Rename(partial, dir)
	}
	if err == nil {
		err = syncPath(filepath.Dir(filepath.Clean(dir)))
	}
	if err != nil {
		os.RemoveAll(partial)
		return nil, err
	}
	return e.summary(), nil
}

// unfit says why mlx-lm would compute something else, "" if it does not.
func unfit(p *doc.Profile) string {
	a := &p.Architecture
	ofLlama := p.Family == "llama" || p.Family == "mistral"
	switch {
	case !slices.Contains(families, p.Family):
		return fmt.Sprintf("family %q: mlx-lm keeps its tensors in other pieces, only %q can be exported", p.Family, families)
	case a.SlidingWindow > 0 && !ofLlama:
		return fmt.Sprintf("mlx-lm has no sliding window in family %q", p.Family)
	case ofLlama && a.AttentionBias != a.AttentionOBias, p.Family == "qwen2" && !a.AttentionBias, (p.Family == "qwen3" || p.Family == "qwen3_moe") && a.AttentionBias:
		return fmt.Sprintf("mlx-lm has other biases of attention in family %q", p.Family)
	case a.RoPE.Type == "yarn":
		return "rotary embedding of type yarn: mlx-lm scales it in its own way"
	}
	return ""
}

// export is one export under way.
type export struct {
	store   *store.Store
	plan    *store.Plan
	opt     Options
	modules []*module
	records []recordParts
	bytes   int64 // of all tensors
}

// recordParts is a record of the static level and where its tensors go.
type recordParts struct {
	record *doc.Record
	parts  []part // as the tensors of its layout
}

// part is a tensor of a record in its module.
type part struct {
	module *module
	index  int // of the expert, -1 if the module is its alone
}

func newExport(s *store.Store, opt Options) (*export, error) {
	p := &s.Manifest().Profile
	if reason := unfit(p); reason != "" {
		return nil, &UnfitError{s.Path(), reason}
	}
	plan, err := s.Plan(opt.Plan)
	if err != nil {
		return nil, err
	}
	if opt.Progress == nil {
		opt.Progress = func(int64) {}
	}
	e := &export{store: s, plan: plan, opt: opt}
	if err := e.collect(); err != nil {
		return nil, err
	}
	e.place()
	return e, nil
}

// collect finds the record of every op at its first tier, and the modules that
// their tensors make up.
func (e *export) collect() error {
	p := &e.store.Manifest().Profile
	level := make(map[string]string, len(e.plan.OpBundles)) // record by op
	for i := range e.plan.OpBundles {
		b := &e.plan.OpBundles[i]
		if len(b.Tiers[0].Requires) > 1 {
			return &UnfitError{e.store.Path(), fmt.Sprintf("op %q of plan %q adds up %d records, mlx-lm has one for each matrix: pack a plan without streaming for it",
				b.Op, e.plan.Name, len(b.Tiers[0].Requires))}
		}
		if len(b.Tiers[0].Requires) == 1 {
			level[b.Op] = b.Tiers[0].Requires[0]
		}
	}
	modules := map[string]*module{}
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.Shares != "" || len(op.Tensors) == 0 {
			continue
		}
		record := e.plan.Record(level[op.ID])
		if record == nil {
			return &UnfitError{e.store.Path(), fmt.Sprintf("plan %q has no record of op %q", e.plan.Name, op.ID)}
		}
		r := recordParts{record: record}
		for j := range e.store.Layout(record).Tensors {
			t := &e.store.Layout(record).Tensors[j]
			to, err := e.add(modules, op, t)
			if err != nil {
				return err
			}
			r.parts = append(r.parts, to)
		}
		e.records = append(e.records, r)
	}
	return nil
}

// write writes all files to an empty folder.
func (e *export) write(ctx context.Context, dir string) error {
	if err := e.writeWeights(ctx, filepath.Join(dir, WeightsFile)); err != nil {
		return err
	}
	texts, err := e.texts()
	if err != nil {
		return err
	}
	for name, b := range texts {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o666); err != nil {
			return err
		}
		if err := syncPath(path); err != nil {
			return err
		}
	}
	return syncPath(dir)
}

func (e *export) summary() *Summary {
	s := &Summary{Bytes: e.bytes}
	for _, m := range e.modules {
		s.Tensors += len(m.tensors)
		if m.widened {
			s.Widened = append(s.Widened, m.path)
		}
	}
	return s
}

// syncPath makes a file, or the names in a folder, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
