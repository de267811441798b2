package backend

import "math"

const maxGroups = 64 // of a router's experts

// Choose picks the s.TopK = len(ids) largest logits of one row, in descending
// order (ties: the lower index first), and their weights as s says. A NaN
// ranks as minus infinity, so that ids are distinct experts whatever the
// input.
func Choose(ids []int32, weights, logits []float32, s RouteSpec) {
	size := len(logits) // experts that are chosen or left out together
	var open uint64     // groups that are chosen from, by bit
	if s.Groups > 0 {
		size = len(logits) / s.Groups
		open = openGroups(logits, s)
	}
	k := 0
	for i, v := range logits {
		if s.Groups > 0 && open>>(i/size)&1 == 0 || k == len(ids) && !above(v, logits[ids[k-1]]) {
			continue
		}
		// Insert i behind everything that is not below it.
		at := min(k, len(ids)-1)
		for ; at > 0 && above(v, logits[ids[at-1]]); at-- {
			ids[at] = ids[at-1]
		}
		ids[at] = int32(i)
		k = min(k+1, len(ids))
	}
	var highest, total, chosen float64 // softmax over all, in or out
	highest = float64(logits[ids[0]])
	for _, v := range logits {
		if float64(v) > highest {
			highest = float64(v)
		}
	}
	for _, v := range logits {
		total += math.Exp(float64(v) - highest)
	}
	for _, id := range ids {
		chosen += math.Exp(float64(logits[id]) - highest)
	}
	if s.Norm {
		total = chosen
	}
	scale := float64(s.Scale)
	if scale == 0 {
		scale = 1
	}
	for i, id := range ids {
		weights[i] = float32(scale * math.Exp(float64(logits[id])-highest) / total)
	}
}

// openGroups marks the s.TopGroups groups with the largest logits (ties: the
// lower index). s.Groups is at most maxGroups.
func openGroups(logits []float32, s RouteSpec) (open uint64) {
	var best [maxGroups]float32
	size := len(logits) / s.Groups
	for g := range s.Groups {
		best[g] = logits[g*size]
		for _, v := range logits[g*size+1 : (g+1)*size] {
			if above(v, best[g]) {
				best[g] = v
			}
		}
	}
	for range s.TopGroups {
		next := -1
		for g, v := range best[:s.Groups] {
			if open>>g&1 == 0 && (next < 0 || above(v, best[next])) {
				next = g
			}
		}
		open |= 1 << next
	}
	return open
}

// above reports a > b with NaN below everything.
func above(a, b float32) bool { return a > b || b != b && a == a }
