package run

import (
	"slices"
	"testing"

	"substrate/pkg/doc"
)

// residencies are ways of holding a model, from everything to as good as
// nothing.
func residencies() map[string]planSpec {
	expert := func(op *doc.Op, _ string) bool { return op.Kind == doc.KindMoEExpert }
	dense := func(op *doc.Op, _ string) bool {
		return op.Kind == doc.KindAttention || op.Kind == doc.KindMLPDense
	}
	all := func(*doc.Op, string) bool { return true }
	return map[string]planSpec{
		"resident":            {},
		"dense through ring":  {streamed: dense},
		"experts in 1 slot":   {streamed: expert, slots: 1},
		"experts in 2 slots":  {streamed: expert, slots: 2},
		"experts in 5 slots":  {streamed: expert, slots: 5},
		"nothing resident":    {streamed: all, slots: 2},
		"every other expert":  {streamed: func(op *doc.Op, _ string) bool { return op.Expert%2 == 1 }, slots: 2},
		"head and embedding":  {streamed: func(op *doc.Op, _ string) bool { return op.Layer < 0 }, slots: 2},
		"large prefill chunk": {streamed: all, slots: 2, chunk: 128},
		"single token chunk":  {streamed: all, slots: 3, chunk: 1},
	}
}

// At the checkpoint's own precision a run gives the tokens that transformers
// gives, wherever its records live.
func TestGreedyEqualsTransformers(t *testing.T) {
	for _, name := range models {
		g := readGolden(t, name)
		digests := map[string]map[string]string{}
		for how, spec := range residencies() {
			t.Run(name+"/"+how, func(t *testing.T) {
				spec.ladder = source
				r := open(t, pack(t, name, false, spec), Options{})
				for _, p := range g.Prompts {
					want := p.Greedy
					if stop := slices.IndexFunc(want, func(id int32) bool { return slices.Contains(r.program.arch.EOS, int(id)) }); stop >= 0 {
						want = want[:stop]
					}
					got, res := generate(t, r, p.IDs, len(p.Greedy))
					if !slices.Equal(got, want) {
						t.Errorf("prompt %s: got %v, want %v", p.Name, got, want)
					}
					if res.Digest == "" {
						t.Error("no digest")
					}
					if digests[p.Name] == nil {
						digests[p.Name] = map[string]string{}
					}
					digests[p.Name][how] = res.Digest
				}
			})
		}
		for prompt, by := range digests {
			for how, d := range by {
				if want := by["resident"]; want != "" && d != want {
					t.Errorf("%s, prompt %s: %s has digest %s, all resident %s", name, prompt, how, d, want)
				}
			}
		}
	}
}
