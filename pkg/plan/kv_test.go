package plan

import (
	"math"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/synth"
)

// kvTable is a table that knows what types of KV cache lose, one of which has
// keys and values of their own.
func kvTable(t *testing.T) *doc.Table {
	t.Helper()
	p, err := synth.Profile(synth.Shape{Layers: 6, Hidden: 256, Heads: 4, Vocab: 4000, Context: 256, Tied: true})
	if err != nil {
		t.Fatal(err)
	}
	f16 := p.KVCaches[1].BytesPerTokenPerLayer
	p.KVCaches = append(p.KVCaches,
		doc.KVCache{Type: "k8v4", BytesPerTokenPerLayer: f16 * 3 / 8},
		doc.KVCache{Type: "q4", BytesPerTokenPerLayer: f16 / 4})
	in, err := synth.Table(p, synth.Losses{})
	if err != nil {
		t.Fatal(err)
	}
	in.KVCaches = nil
	for _, kv := range []struct {
		name string
		kl   float64
	}{{"f32", 0}, {"f16", 1e-7}, {"k8v4", 2e-4}, {"q4", 5e-3}} {
		in.KVCaches = append(in.KVCaches, doc.KVLoss{Type: kv.name, KL: kv.kl, KLError: kv.kl / 10, Source: doc.SourceSynthetic})
	}
	return in
}

// The type of the KV cache is chosen together with the weights: what is found
// is as good as the best of the solutions for each type.
func TestKVCacheIsJoint(t *testing.T) {
	in := kvTable(t)
	chosen := map[int]bool{}
	for _, mib := range []int64{17, 18, 19, 20, 22, 24, 30} {
		b := doc.Budget{MaxRAMBytes: mib << 20, ContextTokens: 256}
		joint, err := newSolver(in, nil, b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := newSearch(joint.problem, mode{}).minimise(limits{ram: joint.problem.free}, 10_000_000)
		best := math.Inf(1)
		for _, kv := range in.KVCaches {
			alone, err := newSolver(in, nil, b, Options{KVCacheType: kv.Type})
			if err != nil {
				t.Fatal(err)
			}
			if r := newSearch(alone.problem, mode{}).minimise(limits{ram: alone.problem.free}, 10_000_000); r != nil {
				best = min(best, r.use.kl+kv.KL)
			}
		}
		switch {
		case got == nil:
			if !math.IsInf(best, 1) {
				t.Errorf("%d MiB: nothing, a type alone has %v", mib, best)
			}
		case got.use.kl > best*(1+1e-5) || got.use.kl < best*(1-1e-5):
			t.Errorf("%d MiB: KL %v, the best type alone has %v", mib, got.use.kl, best)
		default:
			chosen[got.sol.picks[joint.problem.ops].level] = true
		}
	}
	if len(chosen) < 2 {
		t.Errorf("only the types %v were chosen", chosen)
	}
}

// A plan's ledger holds the cache that it chose, and its certificate holds.
func TestKVCacheInPlan(t *testing.T) {
	in := kvTable(t)
	for _, mib := range []int64{20, 23, 64} {
		p, err := Solve(in, nil, doc.Budget{MaxRAMBytes: mib << 20, ContextTokens: 256}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := footprint.KVBytes(&in.Profile, p.KVCacheType, 256)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Memory {
			if l.Name == doc.LedgerKV && l.Bytes != want {
				t.Errorf("%s takes %d bytes, the ledger has %d", p.KVCacheType, want, l.Bytes)
			}
		}
		if _, err := Check(p, in, nil); err != nil {
			t.Error(err)
		}
	}
}
