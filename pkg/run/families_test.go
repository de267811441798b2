package run

import (
	"slices"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/backend/ref"
)

// families are the golden models beside those that most tests use: what is
// particular to a family is in its kernels, where records live is not.
var families = []string{
	"mistral", "mistral-full", "qwen2", "qwen2-window", "qwen3", "qwen3-window", "gpt-oss", "gpt-oss-bf16", "deepseek-v2", "deepseek-v2-lite",
}

// Every family gives the tokens that transformers gives, on the backends that
// have all ops, with records resident, in the ring and in slots.
func TestFamiliesEqualTransformers(t *testing.T) {
	ways := residencies()
	for _, name := range families {
		g := readGolden(t, name)
		for _, how := range []string{"resident", "nothing resident"} {
			spec := ways[how]
			spec.ladder = source
			st := pack(t, name, false, spec)
			digests := map[string]string{}
			for kind, b := range familyBackends(t) {
				r, err := Open(t.Context(), st, "", b, Options{asPlanned: true})
				if err != nil {
					t.Fatal(err)
				}
				p := g.Prompts[0]
				want := p.Greedy
				if stop := slices.IndexFunc(want, func(id int32) bool { return slices.Contains(r.program.arch.EOS, int(id)) }); stop >= 0 {
					want = want[:stop]
				}
				got, res := generate(t, r, p.IDs, len(p.Greedy))
				if !slices.Equal(got, want) {
					t.Errorf("%s, %s, %s: got %v, want %v", name, how, kind, got, want)
				}
				digests[kind] = res.Digest
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func familyBackends(t *testing.T) map[string]backend.Backend {
	all := map[string]backend.Backend{"ref": ref.Open(2)}
	if cpu.Built {
		b, err := cpu.Open(cpu.Options{Threads: 2, Activations: cpu.F32})
		if err != nil {
			t.Fatal(err)
		}
		all["cpu"] = b
	}
	return all
}
