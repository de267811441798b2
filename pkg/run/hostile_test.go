package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/store"
)

// A store whose ops lack tensors, or have others or in other shapes than the
// architecture says, or that are not in their order, is corrupt: no panic, no
// answer.
func TestHostileStores(t *testing.T) {
	m, err := model.Open(filepath.Join("../../testdata/models", "qwen3moe"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	kinds := map[doc.Kind]bool{}
	for i, op := range m.Profile().Ops {
		if kinds[op.Kind] || len(op.Tensors) == 0 {
			continue
		}
		kinds[op.Kind] = true
		for j := range op.Tensors {
			for how, edit := range map[string]func(p *doc.Profile, o *doc.Op){
				"missing": func(_ *doc.Profile, o *doc.Op) { o.Tensors = slices.Delete(o.Tensors, j, j+1) },
				"renamed": func(_ *doc.Profile, o *doc.Op) { o.Tensors[j].Role = "another" },
				"narrow":  func(_ *doc.Profile, o *doc.Op) { o.Tensors[j].Cols /= 2 },
				"tall":    func(_ *doc.Profile, o *doc.Op) { o.Tensors[j].Rows++ },
				"moved": func(p *doc.Profile, _ *doc.Op) {
					p.Ops[i], p.Ops[i+1-2*(i/(len(p.Ops)-1))] = p.Ops[i+1-2*(i/(len(p.Ops)-1))], p.Ops[i]
				},
				"recast": func(_ *doc.Profile, o *doc.Op) { o.Kind = doc.KindMoEShared },
			} {
				profile := *m.Profile()
				profile.Ops = slices.Clone(profile.Ops)
				profile.Ops[i].Tensors = slices.Clone(op.Tensors)
				edit(&profile, &profile.Ops[i])
				t.Run(fmt.Sprintf("%s/%s/%s", op.Kind, op.Tensors[j].Role, how), func(t *testing.T) {
					if len(profile.Ops[i].Tensors) == 0 {
						t.Skip("an op without tensors has no record")
					}
					runHostile(t, &profile)
				})
			}
		}
	}
}

// zeros is a source of nothing.
type zeros struct{}

func (zeros) ReadRows(dst []float32, _ *doc.Tensor, _, _ int) error {
	clear(dst)
	return nil
}

func runHostile(t *testing.T, profile *doc.Profile) {
	if profile.Validate() != nil {
		return
	}
	plan := makePlan(t, profile, planSpec{ladder: source})
	build, err := store.NewBuild(store.Spec{Profile: profile, Plans: []store.NamedPlan{{Name: "default", Plan: plan}}})
	if err != nil {
		return
	}
	path := filepath.Join(t.TempDir(), "m.sb")
	weights := func(context.Context) (string, error) { return strings.Repeat("0", 64), nil }
	if _, err := build.Write(t.Context(), path, store.Options{Source: zeros{}, Weights: weights, Threads: 1}); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), st, "", ref.Open(1), Options{})
	if err == nil {
		r.Close()
		t.Fatal("it runs")
	}
	_, corrupt := errors.AsType[*store.CorruptError](err)
	_, unsupported := errors.AsType[*UnsupportedError](err)
	if !corrupt && !unsupported {
		t.Errorf("not said to be corrupt: %v", err)
	}
	t.Log(err)
}
