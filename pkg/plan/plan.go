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
	"slices"
	"strings"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// Strategies.
const (
	StrategyOptimal   = "optimal"    // least KL within the budget, with a bound
	StrategyStatic    = "static"     // the same without streaming: every record resident
	StrategyGreedyRDO = "greedy-rdo" // promotes by (KL per byte) * (1 + sensitivity); nothing streams
	StrategyUniform   = "uniform"    // the best single encoding that fits

	StrategyLayersOnly = "layers-only" // least KL with one level for all ops of a block; nothing streams
	StrategyRandom     = "random"      // promotes in an order that the seed decides; nothing streams
	StrategyInverted   = "inverted"    // promotes first what gains least; nothing streams
)

// Strategies lists them, the default first.
func Strategies() []string {
	return []string{
		StrategyOptimal, StrategyStatic, StrategyGreedyRDO, StrategyUniform,
		StrategyLayersOnly, StrategyRandom, StrategyInverted,
	}
}

// Slots change every so many tokens, by what was routed so many tokens before:
// what plans say of slot_period_tokens and slot_lead_tokens, and what the
// hit rates of tables are measured at.
const (
	DefaultSlotPeriod = 16
	DefaultSlotLead   = 4
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

	// Classes is how many levels the experts of a layer may take; 0: as many
	// as the policy says, or 3.
	Classes int

	// KVCacheType is that of the KV cache; "": the planner's choice among those
	// that the table knows the losses of, or else "f16" if the model has it.
	KVCacheType  string
	PrefillChunk int // tokens; 0: 32
	SlotPeriod   int // tokens; 0: DefaultSlotPeriod
	SlotLead     int // tokens; 0: DefaultSlotLead

	// Work bounds branch and bound by the number of choices that it looks at,
	// so that the same plan comes out everywhere; 0: 20 million, which take
	// about 0.1 s. Small models get five times as many.
	Work int

	Policy *doc.Policy // nil: doc.DefaultPolicy

	Seed uint64 // of the strategy "random"

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
	if !slices.Contains(Strategies(), o.Strategy) {
		return o, &OptionError{"strategy", fmt.Sprintf("%q: want one of %s", o.Strategy, strings.Join(Strategies(), ", "))}
	}
	o.Threshold = cmp.Or(o.Threshold, 0.15)
	o.PersistenceTokens = cmp.Or(o.PersistenceTokens, 32)
	if o.Policy != nil {
		o.Classes = cmp.Or(o.Classes, o.Policy.MaxClasses)
	}
	o.Classes = cmp.Or(o.Classes, 3)
	o.PrefillChunk = cmp.Or(o.PrefillChunk, 32)
	o.SlotPeriod = cmp.Or(o.SlotPeriod, DefaultSlotPeriod)
	o.SlotLead = cmp.Or(o.SlotLead, DefaultSlotLead)
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
	if o.Classes < 1 {
		return o, &OptionError{"classes", fmt.Sprintf("%d: want at least 1", o.Classes)}
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
	start   *result // of another budget: its prices are a start; or nil
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
	var kv *item
	cleaned := 0
	if it, n, ok := kvItem(t, b.ContextTokens); ok && given.KVCacheType == "" {
		kv, cleaned = &it, n
		o.KVCacheType = it.levels[0].id
	}
	run := footprint.Run{Profile: &t.Profile, KVCacheType: o.KVCacheType, Context: b.ContextTokens, PrefillChunk: o.PrefillChunk}
	if m != nil {
		run.ProcessBase, run.Threads = m.Memory.ProcessBaseBytes, m.Threads
	}
	s := &solver{table: t, machine: m, budget: b, given: given, opt: o, pins: pinned.pins}
	if s.fixed, err = run.Fixed(); err != nil {
		return nil, &OptionError{"context", err.Error()}
	}
	s.problem, s.cleaned, err = newProblem(t, newSpeeds(m, b.SSDBytesPerSec), kv, b.MaxRAMBytes-s.fixed.Sum(), b.MaxSSDCacheBytes, &s.opt)
	if err != nil {
		return nil, err
	}
	s.cleaned += cleaned
	s.problem.mark(s.pins)
	return s, nil
}

// decide chooses the default path.
func (s *solver) decide() (*result, error) {
	if s.problem.free <= 0 {
		return nil, errMemory
	}
	switch {
	case s.opt.Strategy == StrategyUniform:
		return s.uniform()
	case s.opt.Strategy == StrategyGreedyRDO:
		return s.greedy()
	case s.opt.Strategy == StrategyLayersOnly:
		return s.layersOnly()
	case s.opt.Strategy == StrategyRandom:
		return s.random()
	case s.opt.Strategy == StrategyInverted:
		return s.inverted()
	case s.opt.Objective == doc.ObjectiveCap:
		return s.meetCap()
	}
	return s.leastKL()
}
