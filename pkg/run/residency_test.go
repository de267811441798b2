package run

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// randomProgram is a model of random shape with random records.
func randomProgram(r *rand.Rand) *program {
	layers := 1 + r.IntN(5)
	p := &program{arch: &doc.Architecture{Layers: layers, ExpertsPerToken: 1 + r.IntN(3), VocabSize: 10}, experts: make([][]int32, layers)}
	add := func(kind doc.Kind, layer, expert int) {
		n := int32(len(p.ops))
		o := op{id: fmt.Sprint(kind, n), kind: kind, layer: layer, expert: expert, owner: n}
		var records []int32
		for range 1 + r.IntN(3) {
			i := int32(len(p.records))
			p.records = append(p.records, record{id: fmt.Sprint("r", i), op: n, bytes: footprint.RecordAlign * (1 + r.Int64N(40)), zstd: r.IntN(9) == 0})
			records = append(records, i)
			t := tier{records: slices.Clone(records)}
			for _, i := range records {
				t.bytes += p.records[i].bytes
			}
			o.tiers = append(o.tiers, t)
		}
		p.ops = append(p.ops, o)
		if expert < 0 {
			p.steps = append(p.steps, n)
		} else {
			p.experts[layer] = append(p.experts[layer], n)
		}
	}
	add(doc.KindEmbedding, -1, -1)
	for l := range layers {
		add(doc.KindAttention, l, -1)
		if r.IntN(2) == 0 {
			add(doc.KindMLPDense, l, -1)
			continue
		}
		add(doc.KindMoERouter, l, -1)
		for e := range 3 + r.IntN(6) {
			add(doc.KindMoEExpert, l, e)
		}
	}
	add(doc.KindNorm, -1, -1)
	add(doc.KindLMHead, -1, -1)
	return p
}

// randomResidency holds random records of a mode, and random slots.
func randomResidency(p *program, m Mode, r *rand.Rand) *residency {
	res := &residency{resident: make([]bool, len(p.records)), banks: make([]bankSize, len(p.experts))}
	for i := range res.resident {
		res.resident[i] = r.IntN(3) > 0 || p.records[i].zstd
	}
	for l := range res.banks {
		res.banks[l] = bankSize{tier: r.IntN(2), slots: r.IntN(6)}
	}
	p.measure(m, res)
	return res
}

// Whatever the plan: every budget from the smallest up fits, none below does;
// what fits keeps to the budget, has a place for every record of the mode, and
// more memory never makes less resident than there was room for.
func TestFit(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 400 {
		p := randomProgram(r)
		m := Mode(r.IntN(2))
		planned := randomResidency(p, m, r)
		before := planned.clone()
		_, smallest := p.fit(m, planned, 0)
		if smallest <= 0 || smallest > planned.bytes() {
			t.Fatalf("smallest %d, planned %d", smallest, planned.bytes())
		}
		if got, _ := p.fit(m, planned, smallest-1); got != nil {
			t.Fatalf("less than the smallest budget of %d fits", smallest)
		}
		for _, budget := range []int64{smallest, smallest + r.Int64N(smallest), planned.bytes(), 1 << 40} {
			if budget < smallest {
				continue
			}
			got, again := p.fit(m, planned, budget)
			if got == nil || again != smallest {
				t.Fatalf("budget %d, smallest %d and %d: got %v", budget, smallest, again, got)
			}
			if got.bytes() > budget {
				t.Fatalf("budget %d, got %d", budget, got.bytes())
			}
			checkPlaces(t, p, m, got)
			checkNoRoom(t, p, m, got, budget)
		}
		if planned.bytes() != before.bytes() || !slices.Equal(planned.resident, before.resident) || !slices.Equal(planned.banks, before.banks) {
			t.Fatal("fit changed what it was given")
		}
	}
}

// checkPlaces checks that every record of the mode's levels is resident, or
// has room in the ring or in its layer's slots.
func checkPlaces(t *testing.T, p *program, m Mode, r *residency) {
	t.Helper()
	var weights, slots int64
	for i, in := range r.resident {
		if in {
			weights += p.records[i].bytes
		} else if p.records[i].zstd && slices.Contains(p.own(m, p.records[i].op).records, int32(i)) {
			t.Fatalf("record %d is compressed and streams", i)
		}
	}
	for n := range p.ops {
		streamed := p.streamed(r, p.own(m, int32(n)))
		if streamed == 0 {
			continue
		}
		if p.ops[n].kind != doc.KindMoEExpert {
			if r.ring < streamed {
				t.Fatalf("op %d streams %d, the ring has %d", n, streamed, r.ring)
			}
			continue
		}
		if b := r.banks[p.ops[n].layer]; b.slots < 1 || b.tier != 0 || b.bytes < streamed {
			t.Fatalf("op %d streams %d, its bank is %+v", n, streamed, b)
		}
	}
	for _, b := range r.banks {
		slots += int64(b.slots) * b.bytes
	}
	if weights != r.weights || slots != r.slots || r.ring < p.ringBytes(m, r) {
		t.Fatalf("says %d of weights, %d of slots, %d of ring; has %d, %d, at least %d", r.weights, r.slots, r.ring, weights, slots, p.ringBytes(m, r))
	}
}

// checkNoRoom checks that no record that streams would fit beside the rest.
func checkNoRoom(t *testing.T, p *program, m Mode, r *residency, budget int64) {
	t.Helper()
	for n := range p.ops {
		for _, i := range p.own(m, int32(n)).records {
			if r.resident[i] || p.ops[n].kind == doc.KindNorm {
				continue
			}
			more := r.clone()
			more.resident[i] = true
			p.measure(m, more)
			more.ring = max(more.ring, min(r.ring, p.ringBytes(m, r)))
			if p.ops[n].kind != doc.KindMoEExpert && more.bytes() <= budget {
				t.Fatalf("record %d of op %d streams, and %d of %d bytes would do", i, n, more.bytes(), budget)
			}
		}
	}
}

func TestSpreadOrder(t *testing.T) {
	for n, want := range map[int]string{0: "[]", 1: "[0]", 2: "[0 1]", 5: "[0 4 2 1 3]", 8: "[0 4 2 6 1 5 3 7]"} {
		if got := fmt.Sprint(spreadOrder(n)); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
