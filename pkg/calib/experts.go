package calib

import "fmt"

// rareTokens is the number of tokens that the layer's average counts for in
// an expert's mean: experts that served few tokens are judged by their layer.
const rareTokens = 50

// expertShares splits the loss of a layer's experts at a level among them.
// Near the reference a loss is quadratic in what it adds to the residual
// stream, and contributions of different tokens do not cancel, so an expert's
// part is the sum over the tokens that it serves of
// (gate * ||output - coded output||)^2: how often it is picked and how much it
// counts then are inside. An expert with few tokens takes a part of its
// layer's mean per token; none is free.
func (s *sweep) expertShares(i int, g *group, exact, coded Lookup) ([]float64, error) {
	m := s.m
	st := &m.f.stages[i]
	graph := m.f.G
	sum, tokens := make([]float64, len(g.ops)), make([]float64, len(g.ops))
	for n, seq := range s.data.Sequences {
		if err := s.begin(m.f, n, i, s.ref); err != nil {
			return nil, err
		}
		routes, err := graph.Route(exact(st.op))
		if err != nil {
			return nil, err
		}
		outputs := func(w Lookup, dst []float32) ([]float32, error) {
			for _, e := range routes.Experts {
				graph.Expert(e, w(st.experts+int(e)))
			}
			graph.RunExperts()
			y := graph.ExpertOutputs()
			if cap(dst) < y.Rows*y.Cols {
				dst = make([]float32, y.Rows*y.Cols)
			}
			dst = dst[:y.Rows*y.Cols]
			return dst, readRows(dst, m.b, y)
		}
		if m.exactOut, err = outputs(exact, m.exactOut); err != nil {
			return nil, fmt.Errorf("experts of layer %d: %w", st.layer, err)
		}
		if m.codedOut, err = outputs(coded, m.codedOut); err != nil {
			return nil, fmt.Errorf("experts of layer %d: %w", st.layer, err)
		}
		cols := m.p.Architecture.HiddenSize
		for j, e := range routes.IDs[:len(seq.IDs)*routes.TopK] {
			gate := float64(routes.Weights[j])
			sum[e] += gate * gate * squaredDistance(m.exactOut[j*cols:(j+1)*cols], m.codedOut[j*cols:(j+1)*cols])
			tokens[e]++
		}
	}
	return shrink(sum, tokens), nil
}

// shrink turns sums over tokens into shares that add up to 1: the mean of each
// is drawn to the mean of all, and counted as often as the tokens say, with
// half a token more for each.
func shrink(sum, tokens []float64) []float64 {
	var allSum, all float64
	for e := range sum {
		allSum, all = allSum+sum[e], all+tokens[e]
	}
	shares := make([]float64, len(sum))
	if allSum == 0 { // nothing differs, or nothing ran
		for e := range shares {
			shares[e] = 1 / float64(len(shares))
		}
		return shares
	}
	mean := allSum / all
	var total float64
	for e := range shares {
		perToken := (sum[e] + rareTokens*mean) / (tokens[e] + rareTokens)
		shares[e] = perToken * (tokens[e] + 0.5)
		total += shares[e]
	}
	for e := range shares {
		shares[e] /= total
	}
	return shares
}

func squaredDistance(a, b []float32) (sum float64) {
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return sum
}
