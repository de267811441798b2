package calib

import (
	"math"
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

// slowSlots keeps one number of slots as the run does, token by token.
func slowSlots(r *routing, topK, slots, period, lead int) float64 {
	type slot struct {
		expert int32
		ready  bool
	}
	held := make([]slot, slots)
	for i := range held {
		held[i].expert = -1
	}
	used := make([]int, len(r.mass))
	var served, total float64
	for t := 0; (t+1)*topK <= len(r.ids); t++ {
		if t > 0 && t%period == (period-lead)%period {
			var chosen []int32
			for len(chosen) < slots {
				best := int32(-1)
				for e := range int32(len(used)) {
					if used[e] > 0 && !slices.Contains(chosen, e) && (best < 0 || used[e] > used[best]) {
						best = e
					}
				}
				if best < 0 {
					break
				}
				chosen = append(chosen, best)
			}
			for _, e := range chosen {
				if slices.ContainsFunc(held, func(s slot) bool { return s.expert == e }) {
					continue
				}
				free := slices.IndexFunc(held, func(s slot) bool { return !slices.Contains(chosen, s.expert) })
				held[free] = slot{expert: e}
			}
		}
		if t%period == 0 {
			for i := range held {
				held[i].ready = held[i].expert >= 0
			}
		}
		for i := t * topK; i < (t+1)*topK; i++ {
			g := r.gates[i] * r.gates[i]
			total += g
			if slices.Contains(held, slot{r.ids[i], true}) {
				served += g
			}
			used[r.ids[i]] = t + 1
		}
	}
	return served / total
}

func TestUpgradedAgainstSimulation(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const experts, topK = 10, 3
	r := routing{mass: make([]float64, experts)}
	for t := range 400 {
		perm := rng.Perm(experts)
		for i := range perm { // a window that moves
			perm[i] = (perm[i]%6 + t/40) % experts
		}
		perm = slices.Compact(slices.Sorted(slices.Values(perm)))
		for _, i := range rng.Perm(len(perm))[:topK] {
			r.ids, r.gates = append(r.ids, int32(perm[i])), append(r.gates, rng.Float64())
		}
	}
	for _, c := range []struct{ period, lead int }{{16, 4}, {5, 0}, {4, 3}} {
		for s, got := range r.upgraded(topK, c.period, c.lead) {
			if want := slowSlots(&r, topK, s, c.period, c.lead); math.Abs(got-want) > 1e-9 {
				t.Errorf("period %d, lead %d, %d slots: %g of squared gate served, simulation says %g", c.period, c.lead, s, got, want)
			}
		}
	}
}
