// Command tierdemo is the demonstration behind `make demo-tiers`: a script
// says that attention ops disagree for some tokens, and the tier controller
// does what it promises. It runs one given text three times over a store: at
// the top level (the reference of the KL), at the default tiers, and at the
// default tiers with the script.
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/backends"
	"substrate/internal/cli"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/run"
	"substrate/pkg/store"
	"substrate/pkg/tokenizer"
	"substrate/pkg/trace"
)

// The script: no disagreement, then some, then none until everything has
// decayed.
const (
	quiet     = 40 // tokens before
	disagrees = 24 // tokens with disagreement
	after     = 40 // tokens after the last op went back
	amount    = 0.5
)

func main() {
	cli.Main(cli.Tool{Name: "tierdemo", Summary: "shows tiers that switch", Verbs: []cli.Verb{{
		Args: "STORE",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			text := cli.PathFlag(fs, "text", "", "decode the text of `FILE`")
			svg := cli.PathFlag(fs, "svg", "", "write the plot to `FILE`")
			rounds := fs.Int("rounds", 5, "time `N` runs of each kind, interleaved")
			return func(ctx context.Context, env *cli.Env, args []string) error {
				return demo(ctx, env, args[0], *text, *svg, *rounds)
			}
		},
	}}})
}

// series is what a run of the text gave, by token.
type series struct {
	logProbs [][]float32 // of the next token, by position
	ns       []int64
	tiers    []*doc.TierLine
	ops      []*doc.OpLine
}

func demo(ctx context.Context, env *cli.Env, storePath, textPath, svgPath string, rounds int) error {
	st, err := store.Open(storePath)
	if err != nil {
		return err
	}
	plan, err := st.Plan("")
	if err != nil {
		return err
	}
	script, ops := disagreement(plan.Plan)
	if len(ops) == 0 {
		return fmt.Errorf("no attention op of plan %s has a tier 1 and a place in the pool: a smaller --max-ram leaves them", plan.Name)
	}
	persistence := plan.Escalation.PersistenceTokens
	ids, err := readText(st, textPath, quiet+disagrees+persistence+after+1)
	if err != nil {
		return err
	}
	reference, err := score(ctx, st, run.Exact, nil, ids)
	if err != nil {
		return err
	}
	var plain, scripted *series
	plainP99, scriptedP99 := int64(math.MaxInt64), int64(math.MaxInt64) // of the calmest round each
	for range rounds {
		if plain, err = score(ctx, st, run.Scheduled, nil, ids); err != nil {
			return err
		}
		if scripted, err = score(ctx, st, run.Scheduled, run.NewScriptedVerifier(script), ids); err != nil {
			return err
		}
		plainP99, scriptedP99 = min(plainP99, percentile(plain.ns, 99)), min(scriptedP99, percentile(scripted.ns, 99))
	}
	r := &report{
		plan: plan.Plan, ops: ops, persistence: persistence, default_: kl(reference, plain), scripted: kl(reference, scripted), series: scripted,
		plainP99: plainP99, scriptedP99: scriptedP99,
	}
	if svgPath != "" {
		if err := os.WriteFile(svgPath, []byte(r.svg()), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprint(env.Stdout, r.text())
	return r.judge()
}

// disagreement scripts the attention ops that can escalate together.
func disagreement(p *doc.Plan) (script map[string][]float64, ops []string) {
	script = make(map[string][]float64)
	values := append(make([]float64, quiet), slices.Repeat([]float64{amount}, disagrees)...)
	for i := range p.OpBundles {
		b := &p.OpBundles[i]
		if b.Kind == doc.KindAttention && len(b.Tiers) > 1 && len(ops) < p.Escalation.MaxConcurrent {
			script[b.Op] = values
			ops = append(ops, b.Op)
		}
	}
	return script, ops
}

// readText is the first n tokens of a text.
func readText(st *store.Store, path string, n int) ([]int32, error) {
	const file = "tokenizer.json"
	source, err := st.Text(file)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.LoadBytes(source, st.Path()+"/"+file)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(string(text), tokenizer.EncodeOptions{AddSpecial: true})
	if err == nil && len(ids) < n {
		err = fmt.Errorf("%s: has %d tokens, want %d", path, len(ids), n)
	}
	if err != nil {
		return nil, err
	}
	return ids[:n], nil
}

// score runs the text in a mode, with a verifier or none.
func score(ctx context.Context, st *store.Store, mode run.Mode, v run.Verifier, ids []int32) (*series, error) {
	b, err := open()
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	r, err := run.OpenPlanned(ctx, st, "", b, run.Options{Mode: mode, Verifier: v, Trace: trace.NewWriter(&out, trace.Full), Context: len(ids)})
	if err != nil {
		return nil, err
	}
	s := new(series)
	res, err := r.Score(ctx, ids, func(i int, logits []float32) error {
		s.logProbs = append(s.logProbs, logSoftmax(logits))
		return nil
	})
	if err == nil {
		err = r.End(&res, 0)
	}
	if closed := r.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	return s, s.read(out.String())
}

func open() (backend.Backend, error) {
	const threads = 2
	return backends.Open(backends.Default(), "int8", threads)
}

// read takes tiers and times from a trace.
func (s *series) read(text string) error {
	lines := trace.NewReader("trace", strings.NewReader(text))
	var last int64
	for {
		line, head, err := lines.Next()
		if err != nil {
			return nil // the end: this process wrote it a moment ago
		}
		switch l := line.(type) {
		case *doc.TierLine:
			s.tiers = append(s.tiers, l)
		case *doc.OpLine:
			if head.Token > last { // a token's first op: the one before has ended
				s.ns = append(s.ns, 0)
				last = head.Token
			}
			if n := len(s.ns); n > 0 {
				s.ns[n-1] += l.TimeNs
			}
			s.ops = append(s.ops, l)
		}
	}
}

// logSoftmax is the logarithms of the probabilities.
func logSoftmax(logits []float32) []float32 {
	top := slices.Max(logits)
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l - top))
	}
	shift := float64(top) + math.Log(sum)
	p := make([]float32, len(logits))
	for i, l := range logits {
		p[i] = float32(float64(l) - shift)
	}
	return p
}

// kl is the divergence of a run's distributions from the reference's, in nats,
// by position.
func kl(reference, of *series) []float64 {
	all := make([]float64, len(of.logProbs))
	for i, q := range of.logProbs {
		var sum float64
		for j, p := range reference.logProbs[i] {
			sum += math.Exp(float64(p)) * float64(p-q[j])
		}
		all[i] = sum
	}
	return all
}

func percentile(values []int64, percent int) int64 {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[min(len(values)-1, len(values)*percent/100)]
}
