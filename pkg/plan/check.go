package plan

import (
	"fmt"
	"math"
	"slices"

	"substrate/pkg/doc"
)

// Checked is what a check of a plan's certificate found.
type Checked struct {
	Value      int64 // picoNats that the plan loses, added up anew
	LowerBound int64 // that the multipliers prove, of the charged KL, in picoNats
	Claimed    int64 // lower bound of the certificate
	BySearch   bool  // what is claimed beyond the multipliers rests on branch and bound
}

// CheckError says which claim of a certificate does not hold.
type CheckError struct{ Reason string }

func (e *CheckError) Error() string { return "certificate: " + e.Reason }

// ExitCode is that of a "no".
func (e *CheckError) ExitCode() int { return 1 }

func claim(format string, args ...any) error { return &CheckError{fmt.Sprintf(format, args...)} }

// CheckAlone checks what a plan's certificate says about the plan itself: its
// arithmetic, and that the sum of its default tiers is its value.
func CheckAlone(p *doc.Plan) (*Checked, error) {
	c := p.Certificate
	if c == nil {
		return nil, claim("the plan of strategy %q has none", p.Strategy)
	}
	if c.Value > 0 {
		if gap := float64(c.Value-c.LowerBound) / float64(c.Value); math.Abs(gap-c.RelativeGap) > 1e-12 {
			return nil, claim("relative_gap %v, but value %d and lower_bound %d make %v", c.RelativeGap, c.Value, c.LowerBound, gap)
		}
	}
	var sum float64
	for i := range p.OpBundles {
		sum += p.OpBundles[i].Tiers[0].QualityRisk
	}
	upgrades := slices.ContainsFunc(p.Scheduled.Slots, func(s doc.SlotLayer) bool { return s.Tier == 1 })
	sum += p.KVCacheKL
	// A plan that was cut rounded every op that it moved.
	if !upgrades && math.Abs(sum*1e12-float64(c.Value)) > float64(1+len(p.OpBundles))+1e-9*float64(c.Value) {
		return nil, claim("value %d picoNats, but the default tiers lose %.0f", c.Value, sum*1e12)
	}
	if held := heldBy(p); held > c.RAMBytes {
		return nil, claim("the plan holds %d bytes of records, its bound is for %d", held, c.RAMBytes)
	}
	return &Checked{Value: c.Value, LowerBound: c.LowerBound, Claimed: c.LowerBound, BySearch: c.BySearch}, nil
}

// Check checks a plan's certificate against the table and the machine (nil:
// not measured) that it was made of, without the solver: it adds the plan up
// anew, and evaluates every bound at its prices in integers, op by op.
func Check(p *doc.Plan, t *doc.Table, m *doc.Machine) (*Checked, error) {
	done, err := CheckAlone(p)
	if err != nil {
		return nil, err
	}
	c := p.Certificate
	o := Options{
		Strategy: StrategyOptimal, Classes: c.Classes, PrefillChunk: p.PrefillChunk,
		SlotPeriod: p.SlotPeriod, SlotLead: p.SlotLead, Policy: policyOf(p.Pins),
	}
	if len(t.KVCaches) < 2 || c.KVGiven {
		o.KVCacheType = p.KVCacheType
	}
	s, err := newSolver(t, m, p.Budget, o)
	if err != nil {
		return nil, err
	}
	sol, err := s.solutionOf(p)
	if err != nil {
		return nil, err
	}
	u := s.problem.use(sol)
	done.Value = picoNats(math.Ceil, u.kl)
	if d := done.Value - c.Value; max(d, -d) > int64(1+len(p.OpBundles))+c.Value/1e9 {
		return nil, claim("value %d picoNats, but by the table the plan loses %d", c.Value, done.Value)
	}
	for i, l := range s.ledger(&u, p.PoolBytes) {
		if i < len(p.Memory) && p.Memory[i].Name == l.Name && p.Memory[i].Bytes != l.Bytes {
			return nil, claim("the ledger has %d bytes of %s, by the formulas they are %d", p.Memory[i].Bytes, l.Name, l.Bytes)
		}
	}
	if c.TokenNs > 0 && u.timeNs() > float64(c.TokenNs) {
		return nil, claim("a token takes %.0f ns, its limit is %d: was the plan made with another --machine?", u.timeNs(), c.TokenNs)
	}
	return done, s.checkModes(p, done)
}

// checkModes evaluates the bounds of all modes.
func (s *solver) checkModes(p *doc.Plan, done *Checked) error {
	c := p.Certificate
	if err := s.checkLimits(p); err != nil {
		return err
	}
	if err := s.coverModes(p); err != nil {
		return err
	}
	streams := len(p.Scheduled.Slots) > 0 || p.Scheduled.RingBytes > 0
	proved := int64(math.MaxInt64)
	layers := map[pricesAt]int64{}
	for i := range c.Modes {
		m := &c.Modes[i]
		charge := c.Charge
		if m.RingMax == 0 && !m.Slots {
			charge = 0
		}
		best := int64(0) // no KL is below zero
		for j := range m.Bounds {
			e := evaluator{solver: s, mode: mode{ringMax: m.RingMax, slots: m.Slots}, at: &m.Bounds[j], limits: c, ringLeast: m.RingLeast, layers: layers}
			bound, err := e.bound()
			if err != nil {
				return claim("modes/%d/bounds/%d: %v", i, j, err)
			}
			if bound < m.Bounds[j].LowerBound {
				return claim("modes/%d/bounds/%d: lower_bound %d, but the multipliers prove %d", i, j, m.Bounds[j].LowerBound, bound)
			}
			best = max(best, bound)
		}
		proved = min(proved, best+charge)
	}
	if streams {
		proved -= c.Charge
	}
	done.LowerBound = max(0, min(proved, done.Value))
	if done.LowerBound < c.LowerBound-1-c.Value/roundingShare && !c.BySearch {
		return claim("lower_bound %d, but the multipliers prove %d", c.LowerBound, done.LowerBound)
	}
	return nil
}

// checkLimits checks that the bounds are for what the budget leaves.
func (s *solver) checkLimits(p *doc.Plan) error {
	c := p.Certificate
	if left := s.problem.free - max(p.PoolBytes, s.poolReserve()); c.RAMBytes < left {
		return claim("ram_bytes %d, but the budget leaves %d beside the pool", c.RAMBytes, left)
	}
	if c.DiskBytes != p.Budget.MaxSSDCacheBytes {
		return claim("disk_bytes %d, but the budget has %d", c.DiskBytes, p.Budget.MaxSSDCacheBytes)
	}
	if tps := p.Budget.TargetTokensPerSec; tps > 0 && c.TokenNs > 0 && float64(c.TokenNs) < 1e9/tps/speedBand*(1-1e-9) {
		return claim("token_ns %d, but %g tokens per second leave %.0f", c.TokenNs, tps, 1e9/tps/speedBand)
	}
	return nil
}

// coverModes checks that the modes leave out no way of streaming that the
// strategy allows.
func (s *solver) coverModes(p *doc.Plan) error {
	c := p.Certificate
	sizes := s.problem.ringSizes()
	has := func(f func(m *doc.ModeCase) bool) bool {
		return slices.ContainsFunc(c.Modes, func(m doc.ModeCase) bool { return f(&m) })
	}
	if !has(func(m *doc.ModeCase) bool { return m.RingMax == 0 && !m.Slots }) {
		return claim("modes: none without streaming")
	}
	if p.Strategy == StrategyOptimal {
		if len(s.problem.layers) > 0 && !has(func(m *doc.ModeCase) bool { return m.RingMax == 0 && m.Slots }) {
			return claim("modes: none in which experts alone stream")
		}
		largest := slices.Max(append(sizes, 0))
		if !has(func(m *doc.ModeCase) bool { return m.RingMax >= largest && m.Slots == (len(s.problem.layers) > 0) }) {
			return claim("modes: none in which ops of %d bytes stream", largest)
		}
	}
	var above int64 // what every op may stream in the cases so far
	for i := range c.Modes {
		m := &c.Modes[i]
		if m.RingMax == 0 {
			if m.RingLeast != 0 {
				return claim("modes/%d: a ring of %d bytes for ops that do not stream", i, m.RingLeast)
			}
			continue
		}
		if m.RingMax <= above {
			return claim("modes/%d: ring_max_bytes %d after %d: want them to rise", i, m.RingMax, above)
		}
		least := int64(math.MaxInt64)
		smallest := least
		for _, n := range sizes {
			smallest = min(smallest, n)
			if n > above {
				least = min(least, n)
			}
		}
		if m.RingLeast > 2*least+smallest {
			return claim("modes/%d: a ring of at least %d bytes, but one op of %d beside one of %d takes less", i, m.RingLeast, least, smallest)
		}
		above = m.RingMax
	}
	return nil
}

// policyOf is the policy that pins a plan's ops as they are pinned.
func policyOf(pins []doc.PlanPin) *doc.Policy {
	policy := &doc.Policy{Format: doc.FormatPolicy}
	for _, pin := range pins {
		for _, op := range pin.Ops {
			policy.Pins = append(policy.Pins, doc.Pin{Op: op, MinBits: pin.MinBits, Level: pin.Level, Reason: pin.Reason})
		}
	}
	return policy
}

// solutionOf reads a plan's default path back.
func (s *solver) solutionOf(p *doc.Plan) (*solution, error) {
	resident := make(map[string]bool, len(p.Scheduled.Resident))
	for _, id := range p.Scheduled.Resident {
		resident[id] = true
	}
	sol := s.problem.newSolution()
	for i := range s.problem.items {
		it := &s.problem.items[i]
		if it.op == nil {
			l := slices.IndexFunc(it.levels, func(l level) bool { return l.id == p.KVCacheType })
			if l < 0 {
				return nil, claim("KV cache type %q is not in the table", p.KVCacheType)
			}
			sol.picks[i] = it.whole(l)
			continue
		}
		b := p.Bundle(it.op.ID)
		if b == nil {
			return nil, claim("op %q of the table is not in the plan", it.op.ID)
		}
		l := slices.IndexFunc(it.levels, func(l level) bool { return l.id == b.Tiers[0].Level })
		if l < 0 {
			return nil, claim("op %q has no level %q in the table", it.op.ID, b.Tiers[0].Level)
		}
		k := pick{level: l}
		for _, id := range b.Tiers[0].Requires {
			if resident[id] {
				k.resident++
			}
		}
		sol.picks[i] = k
	}
	for n := range s.problem.layers {
		for _, b := range p.Scheduled.Slots {
			if b.Layer == s.problem.layers[n].layer {
				if experts := len(s.problem.layers[n].experts); b.Slots > experts {
					return nil, claim("layer %d has %d slots for %d experts", b.Layer, b.Slots, experts)
				}
				sol.banks[n] = bank{slots: b.Slots, tier: b.Tier, bytes: b.SlotBytes}
			}
		}
	}
	return sol, nil
}
