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
// gives, and the same bits of logits, wherever its records live.
func TestGreedyEqualsTransformers(t *testing.T) {
	for _, name := range models {
		g := readGolden(t, name)
		digests := map[string]string{} // by prompt
		for how, spec := range residencies() {
			spec.ladder = source
			r := open(t, pack(t, name, false, spec), Options{})
			for _, p := range g.Prompts {
				if p.Name == "long" && how != "nothing resident" && how != "large prefill chunk" {
					continue
				}
				want := p.Greedy
				if stop := slices.IndexFunc(want, func(id int32) bool { return slices.Contains(r.program.arch.EOS, int(id)) }); stop >= 0 {
					want = want[:stop]
				}
				got, res := generate(t, r, p.IDs, len(p.Greedy))
				if !slices.Equal(got, want) {
					t.Errorf("%s, %s, prompt %s: got %v, want %v", name, how, p.Name, got, want)
				}
				if d := digests[p.Name]; d != "" && d != res.Digest {
					t.Errorf("%s, %s, prompt %s: digest %s, elsewhere %s", name, how, p.Name, res.Digest, d)
				}
				digests[p.Name] = res.Digest
			}
		}
	}
}
