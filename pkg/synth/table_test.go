package synth

import (
	"math"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

func moeTable(t *testing.T, l Losses) *doc.Table {
	t.Helper()
	p, err := Profile(Shape{Layers: 3, Hidden: 256, Heads: 4, Vocab: 1000, Experts: 16, TopK: 4, ExpertSize: 128, Shared: 1})
	if err != nil {
		t.Fatal(err)
	}
	table, err := Table(p, l)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Routing is what it says: masses of a layer sum to 1, shares to top-k, no
// expert serves a token twice, more slots never hit less.
func TestTableRouting(t *testing.T) {
	for _, skew := range []float64{-1, 0, 1, 3} {
		table := moeTable(t, Losses{Skew: skew})
		mass, share := map[int]float64{}, map[int]float64{}
		for _, it := range table.Items {
			if l := doc.OpLayer(it.Op); it.GateMass > 0 {
				mass[l] += it.GateMass
				share[l] += it.HitShare
				if it.HitShare > 1+1e-9 {
					t.Errorf("skew %v: %s serves %v of the tokens", skew, it.Op, it.HitShare)
				}
			}
		}
		for l := range 3 {
			if math.Abs(mass[l]-1) > 1e-9 || math.Abs(share[l]-4) > 1e-6 {
				t.Errorf("skew %v layer %d: mass %v, shares %v: want 1 and 4", skew, l, mass[l], share[l])
			}
		}
		for _, r := range table.Reuse {
			if r.HitRate[0] != 0 || r.HitRate[16] != 1 {
				t.Errorf("skew %v layer %d: no slots hit %v, all of them %v", skew, r.Layer, r.HitRate[0], r.HitRate[16])
			}
			for s := 1; s < 16; s++ {
				// An LRU of s slots over equal experts hits s of 16.
				if r.HitRate[s] < r.HitRate[s-1] || skew < 0 && math.Abs(r.HitRate[s]-float64(s)/16) > 0.01 {
					t.Errorf("skew %v layer %d: %d slots hit %v after %v", skew, r.Layer, s, r.HitRate[s], r.HitRate[s-1])
				}
			}
		}
	}
}

// Losses fall by 6 dB per bit, add up to what is said, and sizes are those of
// the formulas.
func TestTableLosses(t *testing.T) {
	table := moeTable(t, Losses{})
	total := map[string]float64{}
	ops := map[string]*doc.Op{}
	for i := range table.Profile.Ops {
		ops[table.Profile.Ops[i].ID] = &table.Profile.Ops[i]
	}
	levels := map[string]*doc.Level{}
	for i := range table.Levels {
		levels[table.Levels[i].ID] = &table.Levels[i]
	}
	for _, it := range table.Items {
		for _, l := range it.Levels {
			total[l.Level] += l.KL
			ram, disk, err := footprint.LevelBytes(ops[it.Op], levels[l.Level], table.Encodings)
			if err != nil || ram != l.RAMBytes || disk != l.DiskBytes {
				t.Errorf("%s %s: %d and %d bytes, the formulas say %d and %d, %v", it.Op, l.Level, l.RAMBytes, l.DiskBytes, ram, disk, err)
			}
		}
	}
	for level, bits := range map[string]float64{"q2g64-bf16-lsq1": 2, "q4g64-bf16-lsq1": 4, "q8g64-bf16-lsq1": 8, "q2g64-bf16-lsq1+r3g64-bf16-lsq1": 4} {
		if want := klAtZeroBits * math.Pow(4, -bits); math.Abs(total[level]/want-1) > 1e-9 {
			t.Errorf("%s loses %v in all, want %v", level, total[level], want)
		}
	}
	if total["bf16"] != 0 {
		t.Errorf("the source loses %v", total["bf16"])
	}
}

func TestSensitiveLayers(t *testing.T) {
	part := func(l Losses) float64 {
		var in, all float64
		for _, it := range moeTable(t, l).Items {
			all += it.Levels[0].KL
			if doc.OpLayer(it.Op) == 1 {
				in += it.Levels[0].KL
			}
		}
		return in / (all - in)
	}
	plain, sensitive := part(Losses{Spread: 0.01}), part(Losses{Spread: 0.01, SensitiveLayers: []int{1}})
	if f := sensitive / plain; f < 3.9 || f > 4.1 {
		t.Errorf("layer 1 loses %v times as much beside the others, want 4", f)
	}
}
