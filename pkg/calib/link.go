package calib

import (
	"context"
	"fmt"
	"math"

	"substrate/pkg/doc"
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
// largest. A planner makes such mixes, and they lose more than their sum says:
// whatever was underestimated gets the fewest bits.
var linkSpends = []float64{0.03, 0.06, 0.1, 0.15, 0.21, 0.28, 0.36, 0.45, 0.55}

// minLinkPlans is the least number of plans worth a fit of two parameters.
const minLinkPlans = 4

// wholePlans measures whole plans on text that no item was measured on: it
// fits how their KL follows from the sum of their items', and measures what int8
// activations add to the KL of the widest codes. Routing is watched on the way.
func (m *measurement) wholePlans(ctx context.Context, t *doc.Table, data *Data) (link doc.Link, int8KL float64, err error) {
	plans := mixes(t, linkSpends)
	var variants []*variant
	for i, p := range plans {
		variants = append(variants, &variant{name: fmt.Sprintf("plan %d", i), f: m.f, level: m.planLevels(t, p)})
	}
	widest := m.widest()
	if m.int8 != nil && widest != nil {
		level := func(*doc.Op) *doc.Level { return widest }
		variants = append(variants,
			&variant{name: "all " + widest.ID, f: m.f, level: level},
			&variant{name: "all " + widest.ID + " int8", f: m.int8, level: level})
	}
	if err := m.measure(ctx, data, variants, false); err != nil {
		return link, 0, err
	}
	var points []linkPoint
	for i := range plans {
		kl, _ := Mean(variants[i].score.docs)
		if sum := summedKL(t, plans[i]); sum > 10*t.Floor && kl > 10*t.Floor && sum > 0 {
			points = append(points, linkPoint{math.Log(sum), math.Log(kl)})
		}
	}
	if len(variants) > len(plans) {
		exact, _ := Mean(variants[len(plans)].score.docs)
		rounded, _ := Mean(variants[len(plans)+1].score.docs)
		int8KL = max(0, rounded-exact)
	}
	return linkOf(points), int8KL, nil
}

// widest is the level of one record with most bits below 16, nil if no level
// has codes.
func (m *measurement) widest() (widest *doc.Level) {
	bits := 0
	for i := range m.opt.Levels {
		l := &m.opt.Levels[i]
		if e := m.coder.encodings[l.Encodings[0]]; len(l.Encodings) == 1 && e.Bits < 16 && e.Bits > bits {
			widest, bits = l, e.Bits
		}
	}
	return widest
}

// planLevels says which level each op has in a plan.
func (m *measurement) planLevels(t *doc.Table, plan []int) func(op *doc.Op) *doc.Level {
	levels := make(map[string]*doc.Level, len(t.Items))
	for i := range t.Items {
		for j := range m.opt.Levels {
			if l := &m.opt.Levels[j]; l.ID == t.Items[i].Levels[plan[i]].Level {
				levels[t.Items[i].Op] = l
			}
		}
	}
	return func(op *doc.Op) *doc.Level { return levels[op.ID] }
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
