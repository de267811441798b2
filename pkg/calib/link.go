package calib

import (
	"context"
	"math"

	"substrate/pkg/doc"
	"substrate/pkg/quant"
)

// additiveError bounds how far the KL of a whole plan lies from the sum of its
// ops' KLs, as a share of the sum, where no link was fitted: published figures
// for 3.3 to 4.6 bits per weight are 0.9 to 1.35 of the sum, ours for a small
// random model 0.6.
const additiveError = 0.6

// additiveLink is the link of a table without whole plans.
func additiveLink() doc.Link {
	return doc.Link{Source: "additive", Scale: 1, Exponent: 1, Error: additiveError}
}

// linkSpends are the plans that the link is fitted on: mixes of least summed
// KL that spend these shares of what lies between the smallest plan and the
// largest, and every dedicated level alone.
var linkSpends = []float64{0.04, 0.1, 0.18, 0.28, 0.4, 0.55}

// minLinkPlans is the least number of plans worth a fit of two parameters.
const minLinkPlans = 4

// fitLink measures whole plans on text that no item was measured on, and fits
// how their KL follows from the sum of their items'.
func (m *measurement) fitLink(ctx context.Context, t *doc.Table) (doc.Link, error) {
	plans := linkPlans(t)
	c := &comparison{b: m.b, p: m.p, ref: m.dense, rf: m.f, s: m.s, data: m.opt.Link, opt: VerifyOptions{Progress: m.opt.Progress}}
	var err error
	if c.mf, err = NewForward(m.b, m.p, c.data.Longest(), "f32"); err != nil {
		return doc.Link{}, err
	}
	var models []logits
	for _, p := range plans {
		coded, err := LoadCoded(ctx, m.b, m.p, m.planRecords(t, p))
		defer coded.Free()
		if err != nil {
			return doc.Link{}, err
		}
		models = append(models, c.whole(coded))
	}
	scores, err := c.scores(ctx, models)
	if err != nil {
		return doc.Link{}, err
	}
	var points []linkPoint
	for i, docs := range scores {
		kl, _ := Mean(docs)
		if sum := summedKL(t, plans[i]); sum > 10*t.Floor && kl > 10*t.Floor && sum > 0 {
			points = append(points, linkPoint{math.Log(sum), math.Log(kl)})
		}
	}
	return linkOf(points), nil
}

// planRecords encodes every op at its level in a plan.
func (m *measurement) planRecords(t *doc.Table, plan []int) Records {
	levels := make(map[string]*doc.Level, len(t.Items))
	for i := range t.Items {
		for j := range m.opt.Levels {
			if l := &m.opt.Levels[j]; l.ID == t.Items[i].Levels[plan[i]].Level {
				levels[t.Items[i].Op] = l
			}
		}
	}
	return func(ctx context.Context, op *doc.Op) ([]quant.Record, error) {
		return m.coder.records(ctx, op, levels[op.ID])
	}
}

// linkPlans are whole plans: by item of a table, the index of its level.
func linkPlans(t *doc.Table) [][]int {
	var plans [][]int
	for l := range t.Levels {
		if len(t.Levels[l].Encodings) > 1 {
			continue
		}
		plan := make([]int, len(t.Items))
		for i := range t.Items {
			for j := range t.Items[i].Levels {
				if t.Items[i].Levels[j].Level == t.Levels[l].ID {
					plan[i] = j
				}
			}
		}
		plans = append(plans, plan)
	}
	return append(plans, mixes(t, linkSpends)...)
}

// summedKL adds up a plan's items.
func summedKL(t *doc.Table, plan []int) (sum float64) {
	for i, l := range plan {
		sum += max(0, t.Items[i].Levels[l].KL)
	}
	return sum
}

// linkPoint is one plan: logarithms of its items' sum and of its measured KL.
type linkPoint struct{ sum, kl float64 }

// linkOf fits log KL = log scale + exponent * log sum by least squares. Its
// error is twice the root mean square of what each plan is off where it is
// left out of the fit.
func linkOf(points []linkPoint) doc.Link {
	if len(points) < minLinkPlans {
		return additiveLink()
	}
	var ss float64
	for i := range points {
		others := append(append([]linkPoint(nil), points[:i]...), points[i+1:]...)
		a, b := line(others)
		d := points[i].kl - (a + b*points[i].sum)
		ss += d * d
	}
	a, b := line(points)
	return doc.Link{
		Source: "fitted", Scale: math.Exp(a), Exponent: b, Plans: len(points),
		Error: math.Expm1(2 * math.Sqrt(ss/float64(len(points)))),
	}
}

// Bounds of the exponent: KL rises with the sum, near the reference in
// proportion.
const minExponent, maxExponent = 0.5, 2

// line is the least-squares line through points, its slope kept in bounds.
func line(points []linkPoint) (intercept, slope float64) {
	n := float64(len(points))
	var x, y, xx, xy float64
	for _, p := range points {
		x, y = x+p.sum/n, y+p.kl/n
	}
	for _, p := range points {
		xx += (p.sum - x) * (p.sum - x)
		xy += (p.sum - x) * (p.kl - y)
	}
	slope = 1
	if xx > 0 {
		slope = min(max(xy/xx, minExponent), maxExponent)
	}
	return y - slope*x, slope
}
