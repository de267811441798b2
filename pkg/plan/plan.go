// Package plan decides, offline, which op of a model gets which precision and
// where its records live, so that the run has nothing left to decide: a pure
// function of a table, a machine, a budget and policies, without I/O, clock
// or randomness.
//
// Every op and expert is an item with levels of different bytes and KL. An
// item is resident at a level, or streams: a dense op through a ring that all
// share, an expert through its layer's slots; and slots may hold upgrades of
// resident experts. The solver puts a price on each scarce resource (bytes of
// RAM, time of a token, bytes on disk), decides every item for itself at these
// prices, bisects the prices until the budget holds, and spends what is left
// greedily. The prices also give a lower bound on the KL of every plan within
// the budget (Lagrangian duality; Everett 1963), which the certificate states.
package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// Strategies.
const (
	StrategyOptimal   = "optimal"    // least KL within the budget, with a bound
	StrategyStatic    = "static"     // the same without streaming: every record resident
	StrategyGreedyRDO = "greedy-rdo" // promotes by (KL per byte) * (1 + sensitivity); nothing streams
	StrategyUniform   = "uniform"    // the best single encoding that fits
)

// Options are the policies of a plan. The zero value is the default.
type Options struct {
	Strategy  string // "": optimal, or greedy-rdo with the objective "cap"
	Objective string // "": doc.ObjectiveKL

	// MaxConcurrent is how many ops may be escalated at once, the K of the
	// pool, and is lowered to the number of ops that can escalate; 0: 6, or
	// fewer where the pool of six would leave most ops without escalation.
	MaxConcurrent     int
	Threshold         float64 // disagreement that escalates; 0: 0.15
	PersistenceTokens int     // 0: 32

	KVCacheType  string // "": "f16" if the model has it
	PrefillChunk int    // tokens; 0: 32
	SlotPeriod   int    // tokens; 0: 16
	SlotLead     int    // tokens; 0: 4

	// Work bounds branch and bound by the number of choices that it looks at,
	// so that the same plan comes out everywhere; 0: 20 million, which take
	// about 0.1 s.
	Work int

	Policy *doc.Policy // nil: doc.DefaultPolicy

	TableSHA256 string // of the table's bytes, for the plan to name
}

// poolShare is the part of the memory for records that the pool of a plan of
// least KL may take: escalation is worth something, but not what the default
// path could make of the same bytes.
const poolShare = 1.0 / 16

func (o Options) withDefaults(p *doc.Profile) (Options, error) {
	o.Objective = cmp.Or(o.Objective, doc.ObjectiveKL)
	switch o.Objective {
	case doc.ObjectiveKL:
		o.Strategy = cmp.Or(o.Strategy, StrategyOptimal)
	case doc.ObjectiveCap:
		o.Strategy = cmp.Or(o.Strategy, StrategyGreedyRDO)
	default:
		return o, &OptionError{"objective", fmt.Sprintf("%q: want %s or %s", o.Objective, doc.ObjectiveKL, doc.ObjectiveCap)}
	}
	if !slices.Contains([]string{StrategyOptimal, StrategyStatic, StrategyGreedyRDO, StrategyUniform}, o.Strategy) {
		return o, &OptionError{"strategy", fmt.Sprintf("%q: want %s, %s, %s or %s", o.Strategy, StrategyOptimal, StrategyStatic, StrategyGreedyRDO, StrategyUniform)}
	}
	o.Threshold = cmp.Or(o.Threshold, 0.15)
	o.PersistenceTokens = cmp.Or(o.PersistenceTokens, 32)
	o.PrefillChunk = cmp.Or(o.PrefillChunk, 32)
	o.SlotPeriod = cmp.Or(o.SlotPeriod, 16)
	o.SlotLead = cmp.Or(o.SlotLead, 4)
	o.Work = cmp.Or(o.Work, 20_000_000)
	if o.KVCacheType == "" && len(p.KVCaches) > 0 {
		o.KVCacheType = p.KVCaches[0].Type
		if slices.ContainsFunc(p.KVCaches, func(c doc.KVCache) bool { return c.Type == "f16" }) {
			o.KVCacheType = "f16"
		}
	}
	if o.MaxConcurrent < 0 {
		return o, &OptionError{"max-concurrent", fmt.Sprintf("%d: want at least 1", o.MaxConcurrent)}
	}
	if o.PrefillChunk < 1 {
		return o, &OptionError{"prefill-chunk", fmt.Sprintf("%d: want at least 1", o.PrefillChunk)}
	}
	return o, nil
}

// Solve makes the plan of a table for a machine (nil: not measured) within a
// budget. Errors: *TableError, *OptionError, *InfeasibleError, or what the
// documents' Validate say.
//
// Of the budget, ContextTokens 0 stands for 4096 or the model's limit, and
// TargetTokensPerSec 0 for half of what the best plan without streaming would
// reach, or, where nothing fits without streaming, of the fastest plan.
func Solve(t *doc.Table, m *doc.Machine, b doc.Budget, o Options) (*doc.Plan, error) {
	s, err := newSolver(t, m, b, o)
	if err != nil {
		return nil, err
	}
	r, err := s.decide()
	if err != nil {
		return nil, s.infeasible(err)
	}
	return s.assemble(r)
}

// DefaultContext is the context of a budget that names none, in tokens.
const DefaultContext = 4096

// solver is one call of Solve.
type solver struct {
	table   *doc.Table
	machine *doc.Machine
	budget  doc.Budget
	given   Options // as the caller gave them
	opt     Options
	pins    []doc.PlanPin
	fixed   footprint.Fixed
	problem *problem
	cleaned int
}

func newSolver(t *doc.Table, m *doc.Machine, b doc.Budget, o Options) (*solver, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if m != nil {
		if err := m.Validate(); err != nil {
			return nil, err
		}
	}
	b.ContextTokens = cmp.Or(b.ContextTokens, min(DefaultContext, t.Profile.Architecture.ContextTokens))
	if err := b.Validate(); err != nil {
		return nil, &OptionError{"budget", err.Error()}
	}
	given := o
	o, err := o.withDefaults(&t.Profile)
	if err != nil {
		return nil, err
	}
	if len(t.Items) == 0 {
		return nil, &TableError{Reason: "nothing was measured: PriorTable makes a table of its profile"}
	}
	whole, err := fillPriors(t)
	if err != nil {
		return nil, err
	}
	pinned, err := pin(whole, o.Policy)
	if err != nil {
		return nil, err
	}
	t = pinned.table
	run := footprint.Run{Profile: &t.Profile, KVCacheType: o.KVCacheType, Context: b.ContextTokens, PrefillChunk: o.PrefillChunk}
	if m != nil {
		run.ProcessBase, run.Threads = m.Memory.ProcessBaseBytes, m.Threads
	}
	s := &solver{table: t, machine: m, budget: b, given: given, opt: o, pins: pinned.pins}
	if s.fixed, err = run.Fixed(); err != nil {
		return nil, &OptionError{"context", err.Error()}
	}
	s.problem, s.cleaned, err = newProblem(t, newSpeeds(m, b.SSDBytesPerSec), b.MaxRAMBytes-s.fixed.Sum(), b.MaxSSDCacheBytes, &s.opt)
	return s, err
}

// decide chooses the default path.
func (s *solver) decide() (*result, error) {
	p := s.problem
	static := newSearch(p, mode{})
	if p.free <= 0 {
		return nil, errMemory
	}
	switch s.opt.Strategy {
	case StrategyUniform:
		return s.uniform()
	case StrategyGreedyRDO:
		return s.greedy(static)
	}
	if s.opt.Objective == doc.ObjectiveCap {
		return s.meetCap(static)
	}
	return s.leastKL(static)
}

// leastKL spends the whole budget on KL. A cap on quality goes before a target
// of speed that nobody asked for: then it is the fastest plan, within steps of
// the search, that meets the cap.
func (s *solver) leastKL(static *search) (*result, error) {
	if !s.problem.fitsDisk() {
		return nil, errDisk
	}
	lim := limits{ram: s.problem.free - s.poolReserve(), disk: s.problem.disk}
	mix := static.solve(lim, math.Inf(1), s.firstWork())
	if mix == nil { // a pool is no reason to refuse
		lim.ram = s.problem.free
		mix = static.solve(lim, math.Inf(1), s.firstWork())
	}
	limit := s.timeLimit(mix)
	r, err := s.leastWithin(mix, limit)
	if err != nil || s.checkQuality(r) == nil {
		return r, err
	}
	if s.budget.TargetTokensPerSec > 0 {
		return nil, errQuality
	}
	r, err = s.leastWithin(mix, 0)
	if err != nil || s.checkQuality(r) != nil {
		return nil, errQuality
	}
	low, high := limit, r.use.timeNs()
	for range qualitySteps {
		mid := math.Sqrt(low * high)
		if faster, err := s.leastWithin(mix, mid); err == nil && s.checkQuality(faster) == nil {
			r, high = faster, min(mid, faster.use.timeNs())
		} else {
			low = mid
		}
	}
	return r, nil
}

// qualitySteps halve the logarithm of the time between too coarse and slow.
const qualitySteps = 6

// leastWithin is the plan of least KL that takes at most timeNs per token (0:
// any), streaming or, where mix is not nil, not.
func (s *solver) leastWithin(mix *result, timeNs float64) (*result, error) {
	p := s.problem
	lim := limits{ram: p.free - s.poolReserve(), disk: p.disk, timeNs: timeNs}
	if mix != nil {
		lim.ram = mix.lim.ram
		if !lim.holdTime(&mix.use) {
			mix = newSearch(p, mode{}).solve(lim, math.Inf(1), s.firstWork())
		} else {
			again := *mix
			again.lim = lim
			mix = &again
		}
	}
	best, cause := s.stream(lim, mix)
	if best == nil && lim.ram < p.free {
		lim.ram = p.free
		best, cause = s.stream(lim, nil)
	}
	if best == nil {
		return nil, cause
	}
	if best != mix {
		best.static = mix
	}
	return best, nil
}

// timeLimit is the longest that a token may take, in ns, so that the low end
// of the band of speed holds the target.
func (s *solver) timeLimit(static *result) float64 {
	switch {
	case s.budget.TargetTokensPerSec > 0:
		return 1e9 / s.budget.TargetTokensPerSec / speedBand
	case static != nil:
		return 2 * static.use.timeNs() / speedBand
	}
	u := s.fastest()
	return 2 * u.timeNs() / speedBand
}

// stream looks for a plan that streams and is better than best, which may be
// nil. Without a result, the error tells what lacks.
func (s *solver) stream(lim limits, best *result) (*result, error) {
	cause := errMemory
	for _, m := range s.problem.modes() {
		if best != nil && m.ringMax > 0 && s.problem.mostlyExperts(best.sol) {
			break
		}
		search := newSearch(s.problem, m)
		ceiling := math.Inf(1)
		if best != nil {
			ceiling = s.worthwhile(best)
			// At the prices of the best plan so far, can this mode do better?
			if search.withinRAM(lim, best.prices).bound >= ceiling {
				continue
			}
		}
		r := search.solve(lim, ceiling, s.firstWork())
		switch {
		case r == nil && cause == errMemory && lim.timeNs > 0 && search.fits(lim):
			cause = errTime
		case r != nil && r.use.kl < ceiling:
			best = r
		}
	}
	if best == nil {
		return nil, cause
	}
	return best, nil
}

// firstWork is what a first look at a mode may take.
func (s *solver) firstWork() int { return s.opt.Work / 8 }

// mostlyExperts reports whether the dense ops of a solution take so little
// that streaming them, too, is not worth the search.
func (p *problem) mostlyExperts(s *solution) bool {
	if len(p.layers) == 0 {
		return false
	}
	var dense usage
	for _, i := range p.dense {
		p.itemUse(&dense, i, s.picks[i], 1)
	}
	all := p.use(s)
	return 8*dense.weights < all.ram()
}

// worthwhile is the sum of KLs below which another way of streaming is taken
// instead of a result: by 1 % and by more than measurements can tell.
func (s *solver) worthwhile(r *result) float64 {
	return min(0.99*r.use.kl, r.use.kl-s.table.Floor)
}

// fitsDisk reports whether the smallest records of all items fit the disk.
func (p *problem) fitsDisk() bool {
	var least int64
	for i := range p.items {
		least += p.items[i].levels[0].bytes
	}
	return p.disk == 0 || least <= p.disk
}

// fits reports whether anything fits the RAM, whatever time it takes.
func (s *search) fits(lim limits) bool {
	return s.withinRAM(lim, prices{}).sol != nil
}

// refine solves the mode of a result again, with more work and with what the
// pool leaves, and the best without streaming too, where another mode was
// better by little. It bounds the KL of all modes within the same limits.
func (s *solver) refine(r *result) (*result, rungs) {
	static := r.static
	r, up := s.closer(r)
	if static != nil {
		if other, otherUp := s.closer(static); s.worthwhile(other) <= r.use.kl {
			r, up = other, otherUp
		}
	}
	for _, m := range append([]mode{{}}, s.problem.modes()...) {
		if m == r.search.mode {
			continue
		}
		if least := newSearch(s.problem, m).least(r.lim, r.prices); least.bound < r.bound {
			r.bound, r.prices = least.bound, least.prices
		}
	}
	s.problem.settle(r.sol, s.problem.free-up.pool)
	r.use = s.problem.use(r.sol)
	return r, up
}

// least is a bound of the mode, tried at some prices. Where experts make each
// price costly, the prices of a solution of another mode have to do.
func (s *search) least(lim limits, at prices) relaxation {
	if len(s.p.layers) == 0 {
		return s.withinDisk(lim)
	}
	best := s.withinRAM(lim, prices{})
	for _, mix := range s.mixes() {
		at.compute, at.ring = mix*at.demand, (1-mix)*at.demand
		r := s.withinRAM(lim, at)
		best.raise(r.bound, r.prices)
	}
	return best
}

// closer solves the mode of a result again with what its pool leaves.
func (s *solver) closer(r *result) (*result, rungs) {
	up := s.problem.ladders(r.sol, min(s.problem.free-r.use.ram(), s.poolReserve()))
	lim := r.lim
	lim.ram = s.problem.free - up.pool
	better := r.search.solve(lim, math.Inf(1), s.opt.Work)
	if better == nil || better.use.kl > r.use.kl {
		// More memory has no less KL than the bound says; ask at the new limit.
		r.bound, r.prices = math.Inf(-1), prices{}
		if again := r.search.withinDisk(lim); again.bound > r.bound {
			r.bound, r.prices = min(again.bound, r.use.kl), again.prices
		}
		r.lim = lim
		return r, up
	}
	return better, s.problem.ladders(better.sol, s.problem.free-better.use.ram())
}
