package calib

import (
	"cmp"
	"slices"

	"substrate/pkg/arch"
	"substrate/pkg/doc"
)

// routing is what the reference run saw of one MoE layer.
type routing struct {
	ids    []int32   // [tokens*topK], in order
	gates  []float64 // of ids: router weights, normalised to 1 per token
	mass   []float64 // by expert: sum of normalised router weights
	hits   []int64   // by expert: tokens that routed there
	tokens int64
}

// newRouting makes the observations of every layer.
func newRouting(a *doc.Architecture) []routing {
	rs := make([]routing, a.Layers)
	for _, l := range a.MoELayers {
		rs[l].mass, rs[l].hits = make([]float64, a.Experts), make([]int64, a.Experts)
	}
	return rs
}

func (r *routing) add(routes *arch.Routes, rows int) {
	k := routes.TopK
	r.ids = append(r.ids, routes.IDs[:rows*k]...)
	for t := range rows {
		var sum float64
		for j := range k {
			sum += float64(routes.Weights[t*k+j])
		}
		for j := range k {
			e, gate := routes.IDs[t*k+j], float64(routes.Weights[t*k+j])/sum
			r.gates = append(r.gates, gate)
			r.mass[e] += gate
			r.hits[e]++
		}
	}
	r.tokens += int64(rows)
}

// reuse returns the hit rate of an LRU cache for every number of slots from 0
// to experts, in decode order. A cache holds the s most recently used experts
// exactly when each expert's stack distance is below s (Mattson 1970), so one
// pass serves all sizes. The experts of one token are touched in ascending
// order after all were looked up, as the run does.
func (r *routing) reuse(topK int) []float64 {
	experts := len(r.mass)
	stack := make([]int32, 0, experts) // most recent first
	hitsAt := make([]int64, experts+1) // by distance
	var total int64
	for t := 0; t+topK <= len(r.ids); t += topK {
		token := r.ids[t : t+topK]
		for _, e := range token {
			total++
			for d, s := range stack {
				if s == e {
					hitsAt[d+1]++
					break
				}
			}
		}
		for e := range int32(experts) {
			if contains(token, e) {
				stack = touch(stack, e)
			}
		}
	}
	rate := make([]float64, experts+1)
	var hits int64
	for s := range rate {
		hits += hitsAt[s]
		if total > 0 {
			rate[s] = float64(hits) / float64(total)
		}
	}
	return rate
}

// upgraded returns, for every number of slots from 0 to experts, the share of
// squared gate whose expert has its upgrade in a slot, where slots are filled
// as the run fills them: every period tokens the experts used last take them,
// chosen lead tokens before; a slot that changes hands serves nobody between.
// The squared gate is what an expert's loss counts by.
func (r *routing) upgraded(topK, period, lead int) []float64 {
	experts := len(r.mass)
	used := make([]int, experts) // token of the last use, from 1; 0: never
	// An expert has its upgrade with more slots than its rank in use.
	now, next := make([]int, experts), make([]int, experts)
	for e := range now {
		now[e], next[e] = experts, experts
	}
	servedAt := make([]float64, experts+1) // by rank
	var total float64
	for t := 0; (t+1)*topK <= len(r.ids); t++ {
		switch at := t % period; {
		case at == period-lead && lead > 0:
			rank(next, used)
		case at == 0 && t > 0:
			if lead == 0 {
				rank(next, used)
			}
			copy(now, next)
		}
		for i := t * topK; i < (t+1)*topK; i++ {
			e := r.ids[i]
			g := r.gates[i] * r.gates[i]
			total += g
			servedAt[min(max(now[e], next[e]), experts)] += g
		}
		for _, e := range r.ids[t*topK : (t+1)*topK] {
			used[e] = t + 1
		}
	}
	rate := make([]float64, experts+1)
	var served float64
	for s := 1; s <= experts; s++ {
		served += servedAt[s-1]
		if total > 0 {
			rate[s] = served / total
		}
	}
	return rate
}

// rank sets each expert's place by last use, the lower index first among
// equals, as the run chooses; experts never used get no place.
func rank(dst, used []int) {
	order := make([]int, len(used))
	for e := range order {
		order[e] = e
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(used[b], used[a]) })
	for place, e := range order {
		if dst[e] = place; used[e] == 0 {
			dst[e] = len(used)
		}
	}
}

func contains(v []int32, x int32) bool {
	for _, y := range v {
		if y == x {
			return true
		}
	}
	return false
}

// touch moves e to the front.
func touch(stack []int32, e int32) []int32 {
	at := len(stack)
	for i, s := range stack {
		if s == e {
			at = i
			break
		}
	}
	if at == len(stack) {
		stack = append(stack, e)
	}
	copy(stack[1:at+1], stack[:at])
	stack[0] = e
	return stack
}
