package backend

import "math"

// Choose picks the len(ids) largest logits of one row, in descending order
// (ties: the lower index first), with their softmax over all logits; norm
// makes the weights of the chosen sum to 1. A NaN ranks as minus infinity, so
// that ids are distinct experts whatever the input.
func Choose(ids []int32, weights, logits []float32, norm bool) {
	k := 0
	for i, v := range logits {
		if k == len(ids) && !above(v, logits[ids[k-1]]) {
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
	highest := float64(logits[ids[0]])
	var total, chosen float64
	for _, v := range logits {
		total += math.Exp(float64(v) - highest)
	}
	for _, id := range ids {
		chosen += math.Exp(float64(logits[id]) - highest)
	}
	if norm {
		total = chosen
	}
	for i, id := range ids {
		weights[i] = float32(math.Exp(float64(logits[id])-highest) / total)
	}
}

// above reports a > b with NaN below everything.
func above(a, b float32) bool { return a > b || b != b && a == a }
