package calib

import (
	"cmp"
	"slices"

	"substrate/pkg/doc"
)

// mixes returns, for each share of the bytes between the smallest plan and the
// largest, the plan of about least summed KL: from every item's fewest bytes
// on, the rises along the items' lower convex hulls that save most KL per byte.
func mixes(t *doc.Table, spends []float64) [][]int {
	plan := make([]int, len(t.Items))
	type rise struct {
		item, to int
		bytes    int64
		slope    float64
	}
	var rises []rise
	var most int64
	for i := range t.Items {
		levels := t.Items[i].Levels
		for j := range levels {
			if a, b := &levels[j], &levels[plan[i]]; cmp.Or(cmp.Compare(a.RAMBytes, b.RAMBytes), cmp.Compare(a.KL, b.KL)) < 0 {
				plan[i] = j
			}
		}
		for at := plan[i]; ; {
			best := rise{item: i}
			for j := range levels {
				bytes, saved := levels[j].RAMBytes-levels[at].RAMBytes, levels[at].KL-levels[j].KL
				if bytes > 0 && saved/float64(bytes) > best.slope {
					best = rise{i, j, bytes, saved / float64(bytes)}
				}
			}
			if best.slope == 0 {
				break
			}
			rises = append(rises, best)
			most += best.bytes
			at = best.to
		}
	}
	slices.SortStableFunc(rises, func(a, b rise) int { return cmp.Compare(b.slope, a.slope) })
	var plans [][]int
	var spent int64
	next := 0
	for _, share := range spends {
		for next < len(rises) && float64(spent+rises[next].bytes) <= share*float64(most) {
			plan[rises[next].item] = rises[next].to
			spent += rises[next].bytes
			next++
		}
		plans = append(plans, slices.Clone(plan))
	}
	return plans
}
