package calib

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// slowLRU simulates one cache size straight from its definition.
func slowLRU(ids []int32, topK, slots int) float64 {
	var cache []int32 // least recent first
	hits, total := 0, 0
	for t := 0; t+topK <= len(ids); t += topK {
		token := slices.Clone(ids[t : t+topK])
		for _, e := range token {
			total++
			if slices.Contains(cache, e) {
				hits++
			}
		}
		slices.Sort(token)
		for _, e := range token {
			if i := slices.Index(cache, e); i >= 0 {
				cache = slices.Delete(cache, i, i+1)
			}
			cache = append(cache, e)
		}
		if len(cache) > slots {
			cache = cache[len(cache)-slots:]
		}
	}
	return float64(hits) / float64(total)
}

func TestReuseAgainstSimulation(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const experts, topK = 12, 3
	r := routing{mass: make([]float64, experts), hits: make([]int64, experts)}
	for range 500 {
		perm := rng.Perm(experts)
		slices.SortFunc(perm[:6], func(a, b int) int { return a - b }) // some locality
		for _, e := range perm[:topK] {
			r.ids = append(r.ids, int32(e))
		}
	}
	rate := r.reuse(topK)
	for s, got := range rate {
		if want := slowLRU(r.ids, topK, s); got != want {
			t.Errorf("%d slots: hit rate %g, simulation says %g", s, got, want)
		}
	}
	if rate[0] != 0 || rate[experts] < 0.9 {
		t.Errorf("no slots %g, all slots %g", rate[0], rate[experts])
	}
}
