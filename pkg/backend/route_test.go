package backend_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"substrate/pkg/backend"
)

// slowChoose is Choose by its definition: sort, cut, weigh.
func slowChoose(logits []float32, s backend.RouteSpec) (ids []int32, weights []float64) {
	descending := func(order []int32, key func(int32) float32) {
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(key(b), key(a)) })
	}
	all := make([]int32, len(logits))
	for i := range all {
		all[i] = int32(i)
	}
	if s.Groups > 0 {
		size := len(logits) / s.Groups
		groups := slices.Clone(all[:s.Groups])
		descending(groups, func(g int32) float32 { return slices.Max(logits[int(g)*size:][:size]) })
		all = slices.DeleteFunc(all, func(e int32) bool { return !slices.Contains(groups[:s.TopGroups], e/int32(size)) })
	}
	descending(all, func(e int32) float32 { return logits[e] })
	ids = all[:s.TopK]
	var total, chosen float64
	for _, l := range logits {
		total += math.Exp(float64(l))
	}
	for _, id := range ids {
		chosen += math.Exp(float64(logits[id]))
	}
	if s.Norm {
		total = chosen
	}
	for _, id := range ids {
		weights = append(weights, float64(cmp.Or(s.Scale, 1))*math.Exp(float64(logits[id]))/total)
	}
	return ids, weights
}

func TestChoose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for range 500 {
		s := backend.RouteSpec{Norm: rng.IntN(2) == 0, Scale: float32(rng.IntN(3))}
		experts := 1 + rng.IntN(40)
		most := experts
		if rng.IntN(2) == 0 {
			s.Groups = 1 + rng.IntN(8)
			s.TopGroups = 1 + rng.IntN(s.Groups)
			experts *= s.Groups
			most = experts / s.Groups * s.TopGroups
		}
		s.TopK = 1 + rng.IntN(most)
		logits := make([]float32, experts)
		for i := range logits {
			logits[i] = float32(rng.IntN(20)) / 4 // with ties
		}
		ids, weights := make([]int32, s.TopK), make([]float32, s.TopK)
		backend.Choose(ids, weights, logits, s)
		wantIDs, wantWeights := slowChoose(logits, s)
		if !slices.Equal(ids, wantIDs) {
			t.Fatalf("%+v of %v: chose %v, want %v", s, logits, ids, wantIDs)
		}
		for i, w := range wantWeights {
			if math.Abs(float64(weights[i])-w) > 1e-6*w {
				t.Fatalf("%+v of %v: weights %v, want %v", s, logits, weights, wantWeights)
			}
		}
	}
}
