package run

import (
	"slices"

	"substrate/pkg/doc"
)

// forecast is what a plan expects of a decoded token, op by op: how long each
// takes, reading included, and so when each is due.
type forecast struct {
	op  []int64 // ns by op outside the experts; a router's has its experts' too
	due []int64 // ns from the token's start until the op's records must be there
}

// foresee works a forecast out. The plan predicts the speed of its default
// path; what that has beyond the ops' compute times is reading, spread over
// the ops that stream by their bytes. In mode exact, where the plan predicts
// none, reading is at the disk's rate, as if every slot missed.
func (p *program) foresee(m Mode, plan *doc.Plan, res *residency, bytesPerSec int64) forecast {
	f := forecast{op: make([]int64, len(p.ops)), due: make([]int64, len(p.ops))}
	streams := make([]int64, len(p.ops))
	var compute, bytes int64
	for _, n := range p.steps {
		own := p.own(m, n)
		f.op[n], streams[n] = own.computeNs, p.streamed(res, own)
		if p.ops[n].owner != n {
			streams[n] = 0 // read once for both
		}
		if p.ops[n].kind == doc.KindMoERouter {
			for _, e := range p.experts[p.ops[n].layer] {
				own := p.own(m, e)
				f.op[n] += own.computeNs * int64(p.arch.ExpertsPerToken) / int64(p.arch.Experts)
				streams[n] += p.streamed(res, own) * int64(p.arch.ExpertsPerToken) / int64(p.arch.Experts)
			}
		}
		compute += f.op[n]
		bytes += streams[n]
	}
	if compute == 0 {
		return forecast{}
	}
	var reading float64 // ns
	switch {
	case m != Exact && plan.Predicted.TokensPerSec > 0:
		reading = max(0, 1e9/plan.Predicted.TokensPerSec-float64(compute))
	case bytesPerSec > 0:
		reading = 1e9 * float64(bytes) / float64(bytesPerSec)
	}
	var at int64
	for _, n := range p.steps {
		if bytes > 0 {
			f.op[n] += int64(reading * float64(streams[n]) / float64(bytes))
		} else {
			f.op[n] += int64(reading * float64(f.op[n]) / float64(compute))
		}
		f.due[n] = at
		at += f.op[n]
		if streams[n] > 0 { // it may wait for what it reads itself
			f.due[n] += f.op[n] - p.own(m, n).computeNs
		}
	}
	return f
}

// known reports whether the plan says anything.
func (f *forecast) known() bool { return len(f.op) > 0 }

// scaled is the forecast with every deadline later by a factor.
func (f forecast) scaled(factor float64) forecast {
	f.due = slices.Clone(f.due)
	for i := range f.due {
		f.due[i] = int64(factor * float64(f.due[i]))
	}
	return f
}
