package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"substrate/internal/mem"
	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/store"
	"substrate/pkg/stream"
	"substrate/pkg/trace"
)

// Options are the choices of one run. The zero value of a field means what
// its comment says.
type Options struct {
	Mode Mode
	// CapBytes is the hard cap on the memory of the process, CapSource where
	// it comes from: "flag", "plan" or "auto". 0 is the plan's budget.
	CapBytes  int64
	CapSource string
	// Context is the number of positions, prompt and answer; 0 is the plan's.
	Context int
	// KVType is the type of the KV cache; "" is the plan's.
	KVType string
	// Threads is what the backend was opened with; it goes into the ledger.
	Threads      int
	Activations  string // of the backend, for the trace
	Workers      int    // reads under way at once; 0 is 4
	PromptTokens int    // of the prompt to come: it must fit the context
	// StopTokens end an answer beside those of the model.
	StopTokens []int32
	Seed       int64
	Sampling   Sampling
	// Forced are decoded in place of what the sampler picks, as long as they
	// last: measurements want the same tokens of every run.
	Forced []int32
	// Many says that the run will answer many prompts, which takes more memory
	// of the process: see manyBytes.
	Many bool
	// Tokenizer and ProcessBase replace the estimates of the ledger, in bytes;
	// 0 keeps them.
	Tokenizer   int64
	ProcessBase int64
	// Environment, if not nil, must allow the cap.
	Environment *mem.Environment
	// Verifier, if not nil, drives escalations, but in mode exact.
	Verifier Verifier
	Trace    *trace.Writer
	Clock    stream.Clock // nil: one that starts now

	wrapFile  func(stream.File) stream.File // tests inject faults
	asPlanned bool                          // tests: hold what the plan says, however much fits

	bytesPerSec int64 // of the disk, by the plan
}

// Run is a loaded model, ready to generate. It is used by one goroutine.
type Run struct {
	program *program
	plan    *doc.Plan // only where the controller needs it
	period  int64     // slot_period_tokens
	lead    int64     // slot_lead_tokens
	mode    Mode
	opt     Options
	planned *residency
	fixed   footprint.Fixed
	ledger  []doc.LedgerLine
	counted *mem.Arena
	backend backend.Backend
	graph   *arch.Graph
	reads   reads
	meter   *mem.Meter
	sampler *sampler
	chunk   int

	weights           []backend.Slab // resident records
	places            []place        // by record
	ringSlab, slots   backend.Slab   // nil if there are none
	pool              *pool
	poolBytes         int64
	own               []*arch.Weights // by op outside the experts
	ring              ring
	entry             []int // by op: its entry in the ring, -1 for none
	held              bool  // the tied embedding's visit, begun by the head
	experts           [][]expert
	banks             []bank
	skeleton          []*arch.Weights // by op: what is resident of its own tier, if that is a part of it
	active            []activeTier    // by op: an escalated tier's weights
	controller        *TierController
	bundle            []int   // by op: its index in op_bundles
	ofBundle          []int32 // by index in op_bundles
	manager           *ResidencyManager
	history           *ExpertHistory
	forecast          forecast
	monitor           *RuntimeMonitor
	fallbacks         FallbackPlanner
	began             time.Duration // of the step
	disk              stream.Totals // at the last token's end
	prefix            []int32       // tokens whose keys and values the cache has from a clean start
	missing           []int32
	logits            []float32
	stepCount         int64
	servedBits        float64 // of decode: sum of gate mass * bits
	servedWeights     float64 // of decode: sum of gate mass * weights
	needed            int64   // of decode: bytes of records that kernels read
	peak              mem.Usage
	opLine            doc.OpLine
	slotLine          doc.SlotLine
	tokenLine         doc.TokenLine
	tierLine          doc.TierLine
	signalLine        doc.SignalLine
	fallbackLine      doc.FallbackLine
	memoryLine        doc.MemoryLine
	prefillNs, tokens int64
	decodeNs          int64
	turns             int64 // prompts that were answered since begin
	decoding          bool

	onRoute        func(layer int, experts []int32) // tests watch
	alwaysDecoding bool                             // tests: the prompt has deadlines too
}

// activeTier is an escalated tier of an op.
type activeTier struct {
	tier    int
	weights *arch.Weights // nil: the op is at its own tier
}

// Open admits a plan under its cap, allocates everything the run will need and
// loads the resident records. b must be fresh; the run closes it.
//
// If the run does not fit, the error is a *RefusedError and nothing of size
// was allocated.
func Open(ctx context.Context, s *store.Store, planName string, b backend.Backend, o Options) (r *Run, err error) {
	defer func() {
		if err != nil && r == nil {
			b.Close()
		}
	}()
	r, start, err := prepare(s, planName, b, o)
	if err != nil {
		return nil, err
	}
	// What was read of the documents is garbage now. It goes back before
	// memory is taken, so that the two never add up.
	s = nil
	debug.FreeOSMemory()
	if r.meter, err = mem.NewMeter(); err != nil {
		return nil, err
	}
	now, err := r.meter.Read()
	if err != nil {
		return nil, errors.Join(err, r.meter.Close())
	}
	res, err := r.admit(now.Resident)
	if err != nil {
		return nil, errors.Join(err, r.meter.Close())
	}
	if err := r.bringUp(ctx, res, start); err != nil {
		return nil, err
	}
	return r, r.sample()
}

// bringUp allocates what a residency takes and loads its records, or closes the
// run.
func (r *Run) bringUp(ctx context.Context, res *residency, start *doc.RunStart) error {
	if err := r.allocate(res); err != nil {
		return errors.Join(setupError(err), r.Close())
	}
	r.start(start)
	if err := r.load(ctx); err != nil {
		return errors.Join(err, r.Close())
	}
	return nil
}

// A SetupError says that what a store describes cannot be set up: its
// architecture does not fit its tensors, or the machine has no memory for it.
type SetupError struct{ Err error }

func (e *SetupError) Error() string { return "set up the model of the store: " + e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// ExitCode is that of corruption, and of a device out of memory.
func (e *SetupError) ExitCode() int { return 4 }

// setupError gives an error of setting up its class, unless it has one.
func setupError(err error) error {
	if _, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return err
	}
	return &SetupError{err}
}

// prepare binds plan and store, and works out the parts of the ledger that do
// not depend on where records live.
func prepare(s *store.Store, planName string, b backend.Backend, o Options) (*Run, *doc.RunStart, error) {
	plan, err := s.Plan(planName)
	if err != nil {
		return nil, nil, err
	}
	p, err := bind(s, plan)
	if err != nil {
		if _, ok := errors.AsType[*UnsupportedError](err); ok {
			return nil, nil, err
		}
		return nil, nil, &store.CorruptError{Path: s.Path(), Reason: fmt.Sprintf("plan %q: %v", plan.Name, err)}
	}
	if err := o.complete(plan.Plan, p.arch); err != nil {
		return nil, nil, err
	}
	r := &Run{
		program: p, period: int64(plan.SlotPeriod), lead: int64(plan.SlotLead), planned: p.planned(o.Mode, plan.Plan),
		mode: o.Mode, opt: o, counted: mem.NewArena(), backend: b, chunk: plan.PrefillChunk,
		reads: reads{records: p.records, clock: o.Clock, trace: o.Trace, wrap: o.wrapFile, token: -1},
	}
	if o.Verifier != nil && o.Mode != Exact {
		r.plan, r.poolBytes = plan.Plan, plan.PoolBytes
	}
	rate := cmp.Or(plan.Predicted.ReadBytesPerSec, plan.Budget.SSDBytesPerSec)
	r.opt.bytesPerSec, r.monitor = rate, NewRuntimeMonitor(plan.Fallback, rate)
	r.forecast = p.foresee(o.Mode, plan.Plan, r.planned, rate).scaled(plan.Fallback.LatencyWarnFactor)
	m := s.Manifest()
	if r.fixed, err = r.fixedMemory(&m.Profile); err != nil {
		return nil, nil, err
	}
	return r, &doc.RunStart{
		Synthetic: m.Synthetic || plan.Synthetic, ModelID: m.ModelID, Manifest: s.SHA256(), Plan: plan.Name, Predicted: plan.Predicted,
	}, nil
}

// start writes the first line of the trace.
func (r *Run) start(l *doc.RunStart) {
	o := &r.opt
	l.TraceHead, l.Mode, l.Ledger = r.reads.head(), r.mode.String(), r.ledger
	l.Backend, l.CPUPath, l.Activations, l.Threads = r.backend.Name(), r.backend.Path(), o.Activations, o.Threads
	l.Seed, l.CapBytes, l.CapSource, l.PromptTokens = o.Seed, o.CapBytes, o.CapSource, o.PromptTokens
	l.DirectReads, l.Enforced = r.reads.direct, "none"
	if e := o.Environment; e != nil && e.Cgroup.Limit != mem.NoLimit {
		l.Enforced = "cgroup"
	}
	o.Trace.Start(l)
}

// complete fills the zero values in.
func (o *Options) complete(plan *doc.Plan, a *doc.Architecture) error {
	if o.CapBytes == 0 {
		o.CapBytes, o.CapSource = plan.Budget.MaxRAMBytes, "plan"
	}
	if o.Context == 0 {
		o.Context = plan.Budget.ContextTokens
	}
	if o.KVType == "" {
		o.KVType = plan.KVCacheType
	}
	if o.Clock == nil {
		o.Clock = stream.StartClock()
	}
	if err := o.Sampling.Check(); err != nil {
		return err
	}
	o.Context = min(o.Context, a.ContextTokens)
	if o.PromptTokens > o.Context {
		return &PromptError{Tokens: o.PromptTokens, Context: o.Context, Limit: a.ContextTokens}
	}
	return nil
}

// A PromptError says that a prompt does not fit the context. It comes before
// any work.
type PromptError struct {
	Tokens  int // of the prompt
	Context int // of the run
	Limit   int // the longest context that the model takes
}

func (e *PromptError) Error() string {
	return fmt.Sprintf("the prompt of %d tokens does not fit the context of %d", e.Tokens, e.Context)
}

// Ledger is the memory of the run by purpose.
func (r *Run) Ledger() []doc.LedgerLine { return r.ledger }

// CapBytes is the cap that the run keeps.
func (r *Run) CapBytes() int64 { return r.opt.CapBytes }

// SetSampling changes how tokens of the next prompt are picked.
func (r *Run) SetSampling(s Sampling, seed int64) error {
	if err := s.Check(); err != nil {
		return err
	}
	r.opt.Sampling, r.opt.Seed = s, seed
	return nil
}

// Context is the number of positions that the KV cache holds.
func (r *Run) Context() int { return r.opt.Context }

// Close frees everything.
func (r *Run) Close() error {
	r.reads.close()
	err := r.backend.Close()
	for _, s := range r.slabs() {
		s.Free()
	}
	if r.meter != nil {
		err = errors.Join(err, r.meter.Close())
	}
	return errors.Join(err, r.counted.Close())
}

func (r *Run) slabs() []backend.Slab {
	slabs := append([]backend.Slab(nil), r.weights...)
	if r.ringSlab != nil {
		slabs = append(slabs, r.ringSlab)
	}
	if r.slots != nil {
		slabs = append(slabs, r.slots)
	}
	if r.pool != nil {
		slabs = append(slabs, r.pool.slab)
	}
	return slabs
}

// sample measures the process and keeps the highest values.
func (r *Run) sample() error {
	u, err := r.meter.Read()
	if err != nil {
		return err
	}
	r.peak.Peak = max(r.peak.Peak, u.Peak, u.Resident)
	r.peak.Anonymous = max(r.peak.Anonymous, u.Anonymous)
	r.peak.Resident = u.Resident
	if r.opt.Trace.Wants(trace.Token) {
		r.memoryLine = doc.MemoryLine{
			TraceHead: r.reads.head(), ResidentBytes: u.Resident, AnonymousBytes: u.Anonymous, PeakBytes: r.peak.Peak, HeapBytes: u.Heap,
			SwapBytes: u.Swapped, PressureNs: u.Pressure,
		}
		if b, ok := r.backend.(backend.Metered); ok {
			m, err := b.Memory(false)
			if err != nil {
				return err
			}
			r.memoryLine.BackendActiveBytes, r.memoryLine.BackendCacheBytes, r.memoryLine.BackendPeakBytes = m.Active, m.Cache, m.Peak
		}
		r.opt.Trace.Memory(&r.memoryLine)
	}
	return nil
}
