package doc

// Plan is the PlanBundle: for every op a ladder of tiers that were validated
// offline against one memory budget, and where each record lives while the
// run goes on. A plan that passes Validate never exceeds its budget under its
// escalation policy.
type Plan struct {
	Format         string           `json:"format"`
	Synthetic      bool             `json:"synthetic,omitzero"`
	ModelID        string           `json:"model_id"`
	HeaderSHA256   string           `json:"header_sha256,omitempty"` // of the profile the plan was made for
	TableSHA256    string           `json:"table_sha256,omitempty"`
	Statistics     string           `json:"statistics_sha256,omitempty"`
	Strategy       string           `json:"strategy"`  // "optimal", "greedy-rdo", "uniform" ...
	Objective      string           `json:"objective"` // "kl" or "cap"
	Budget         Budget           `json:"budget"`
	KVCacheType    string           `json:"kv_cache_type"`
	KVCacheKL      float64          `json:"kv_cache_kl,omitzero"` // nats per token that the type of the KV cache loses
	PrefillChunk   int              `json:"prefill_chunk_tokens"` // rows of one prefill step; part of the plan because scratch depends on it
	Encodings      []Encoding       `json:"encodings"`
	Catalog        []CatalogRecord  `json:"tensor_catalog"`
	OpBundles      []OpBundle       `json:"op_bundles"` // topological order
	Escalation     EscalationPolicy `json:"escalation_policy"`
	Fallback       FallbackPolicy   `json:"fallback_policy"`
	PoolBytes      int64            `json:"escalation_ram_pool_bytes"`
	Scheduled      Residency        `json:"scheduled"`
	Exact          Residency        `json:"exact"`
	SlotPeriod     int              `json:"slot_period_tokens"`
	SlotLead       int              `json:"slot_lead_tokens"`
	Memory         []LedgerLine     `json:"memory"` // the ledger of the scheduled mode; adds up to predicted_peak_resident_bytes
	PeakBytes      int64            `json:"predicted_peak_resident_bytes"`
	Predicted      Prediction       `json:"predicted"`
	PredictedExact *Prediction      `json:"predicted_exact,omitempty"` // the same in the mode "exact": every op at its top level
	Uniform        *UniformControl  `json:"uniform,omitempty"`         // the best single encoding at equal bytes
	Certificate    *Certificate     `json:"certificate,omitempty"`
	Link           *Link            `json:"link,omitempty"`       // from the sum of the ops' losses to the KL of the plan
	Increments     []Increments     `json:"increments,omitempty"` // of ops that are wholly resident
	Pins           []PlanPin        `json:"pins,omitempty"`       // precisions that the plan's policy holds
	Annotations    Annotations      `json:"annotations,omitempty"`
}

// Budget is what the user allows.
type Budget struct {
	MaxRAMBytes        int64   `json:"max_ram_bytes"`
	MaxSSDCacheBytes   int64   `json:"max_ssd_cache_bytes"`
	SSDBytesPerSec     int64   `json:"sustained_ssd_bw_bytes_per_sec"`
	QualityLossCap     float64 `json:"quality_loss_cap"`         // nats per token; 0: none
	TargetTokensPerSec float64 `json:"target_tokens_per_second"` // 0: half of the prediction for the best plan without streaming, or else for the fastest
	ContextTokens      int     `json:"context_tokens"`
}

// PlanPin is a precision below which a policy keeps the plan from going, with
// the ops that it is of: at least MinBits, or just Level.
type PlanPin struct {
	Reason  string   `json:"reason"`
	MinBits int      `json:"min_bits,omitzero"`
	Level   string   `json:"level,omitempty"`
	Ops     []string `json:"ops"`
}

// CatalogRecord is one record that the plan's tiers need.
type CatalogRecord struct {
	ID       string `json:"id"` // "block_5.attn.skeleton"
	Op       string `json:"op"` // the op that owns it
	Encoding string `json:"encoding"`
	// Below is the id of the record that a residual adds to; empty for a
	// dedicated record.
	Below    string `json:"below,omitempty"`
	RAMBytes int64  `json:"ram_bytes"`
	SSDBytes int64  `json:"ssd_bytes"`
}

// OpBundle is one op's ladder. tiers[0] is the default, [1] the escalation,
// [2] the ceiling; an op has one to three.
type OpBundle struct {
	Op    string `json:"op"`
	Kind  Kind   `json:"kind"`
	Tiers []Tier `json:"tiers"`
}

// Bundle returns the bundle of an op, nil if the plan has none.
func (p *Plan) Bundle(op string) *OpBundle {
	for i := range p.OpBundles {
		if p.OpBundles[i].Op == op {
			return &p.OpBundles[i]
		}
	}
	return nil
}

// Tier is one precision of an op, with what it needs.
type Tier struct {
	Index       int        `json:"tier_index"`
	Level       string     `json:"level"`    // encoding ids joined by "+"
	Requires    []string   `json:"requires"` // records, skeleton first
	Prefetch    []Prefetch `json:"prefetch"`
	EvictAfter  []string   `json:"evict_after"`
	Fallback    string     `json:"fallback"` // a Fallback… strategy
	DeltaBytes  int64      `json:"peak_ram_delta_bytes"`
	QualityRisk float64    `json:"estimated_quality_risk"` // nats per token
	ComputeNs   int64      `json:"compute_ns"`             // one token through the op
	// Disagreement is how far the op's output at this tier is from its top
	// tier's on calibration text, ||y_top - y|| / ||y_top||; 0 if not measured.
	Disagreement float64 `json:"expected_disagreement,omitzero"`
}

// Prefetch is a read to start while op StartDuring computes, due before op
// DeadlineBefore starts. Both name ops of the same token; a read for the
// first ops of a token starts during the last ops of the token before, which
// WrapsToken says.
type Prefetch struct {
	Record         string `json:"record"`
	StartDuring    string `json:"start_during"`
	DeadlineBefore string `json:"deadline_before"`
	WrapsToken     bool   `json:"wraps_token,omitzero"`
}

// Fallback strategies for a read that misses its deadline.
const (
	FallbackSkeletonOnly = "skeleton_only"
	FallbackSharedExpert = "shared_expert"
	FallbackStall        = "stall"
	FallbackAbortToken   = "abort_token"
)

// EscalationPolicy rules the tier controller.
type EscalationPolicy struct {
	Threshold         float64 `json:"disagreement_threshold"` // on the excess over the tier's expected disagreement
	PersistenceTokens int     `json:"persistence_tokens"`
	MaxConcurrent     int     `json:"max_concurrent_escalations"`
}

// FallbackPolicy rules what timing signals do in the mode "fastest".
type FallbackPolicy struct {
	LatencyWarnFactor     float64 `json:"latency_warn_factor"`
	LatencyCriticalFactor float64 `json:"latency_critical_factor"`
	SSDCriticalFactor     float64 `json:"ssd_bw_critical_factor"`
}

// Residency says where records live in one mode. Records that are neither
// resident nor of a slotted layer pass through the ring, in op order.
type Residency struct {
	// Resident lists the records held for the whole run.
	Resident []string `json:"resident"`
	// Slots are per-layer caches for expert records.
	Slots []SlotLayer `json:"slots"`
	// RingBytes is the buffer through which non-resident dense records pass,
	// in op order: footprint.RingBytes, so that the next op's records always
	// fit beside those in use.
	RingBytes int64        `json:"ring_bytes"`
	Ledger    []LedgerLine `json:"ledger"`
}

// SlotLayer is the slot bank of one layer: Slots buffers of SlotBytes each.
// With Tier 0 they hold what is not resident of the mode's own level of the
// layer's experts (scheduled: the default level; exact: the top level), all
// records of an expert in one slot, each aligned to 4 KiB; with Tier 1 the
// records that tier 1 adds to resident skeletons.
type SlotLayer struct {
	Layer     int   `json:"layer"`
	Tier      int   `json:"tier"`
	Slots     int   `json:"slots"`
	SlotBytes int64 `json:"slot_bytes"`
}

// LedgerLine is one purpose of memory.
type LedgerLine struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Names of ledger lines.
const (
	LedgerWeights     = "weights"
	LedgerSlots       = "slots"
	LedgerRing        = "ring"
	LedgerPool        = "escalation_pool"
	LedgerKV          = "kv_cache"
	LedgerScratch     = "scratch"
	LedgerStaging     = "staging"
	LedgerTokenizer   = "tokenizer"
	LedgerProcessBase = "process_base"
)

// SumLedger adds up a ledger; a sum beyond int64 stays at its largest value.
func SumLedger(lines []LedgerLine) int64 {
	var sum int64
	for _, l := range lines {
		sum = addBytes(sum, l.Bytes)
	}
	return sum
}

// Prediction is what the planner expects of the default path, or of the mode
// "exact".
type Prediction struct {
	KL                float64 `json:"kl"`
	KLLow             float64 `json:"kl_low"`
	KLHigh            float64 `json:"kl_high"`
	KLSource          string  `json:"kl_source"`
	TokensPerSec      float64 `json:"tokens_per_second"`
	TokensPerSecLow   float64 `json:"tokens_per_second_low"`
	TokensPerSecHigh  float64 `json:"tokens_per_second_high"`
	SpeedSource       string  `json:"speed_source"`
	ReadBytesPerToken int64   `json:"read_bytes_per_token"` // expected, after the first token
	// ReadBytesPerSec is the rate that reads of a record were assumed to have.
	ReadBytesPerSec int64   `json:"read_bytes_per_second,omitzero"`
	BitsPerWeight   float64 `json:"bits_per_weight"` // default path, scales included, all parameters
	// SpeedTerms are what the time of a token was added up from: the larger of
	// compute and reads ahead, and the reads that a token waits for.
	SpeedTerms []SpeedTerm `json:"speed_terms,omitempty"`
}

// SpeedTerm is one part of the time of a token.
type SpeedTerm struct {
	Name   string `json:"name"` // a Term…
	Ns     int64  `json:"ns"`
	Source string `json:"source"` // where the number is from
}

// Terms of the time of a token.
const (
	TermProducts = "products"   // matrix products of all ops
	TermFixed    = "fixed"      // what an op costs beside them
	TermAhead    = "read_ahead" // overlaps with compute
	TermDemand   = "demand"     // what a token waits for
)

// UniformControl is the best single encoding that fits the same bytes.
type UniformControl struct {
	Encoding string  `json:"encoding"` // at or below the budget
	KL       float64 `json:"kl"`       // log-interpolated to equal bytes
	Bytes    int64   `json:"bytes"`
}

// Certificate bounds how far the plan is from the best one, in integers of
// 1e-12 nats (picoNats), so that it can be checked without the solver.
//
// Every way of streaming has its own bounds (weak duality): with prices for
// what is scarce, every op and every layer of experts at its cheapest, less
// the prices of what there is, no plan of that way has less KL. The prices of
// one bound hold at other budgets too: there it moves by price times bytes.
type Certificate struct {
	LowerBound  int64   `json:"lower_bound"` // of every plan within the limits, streaming charged
	Value       int64   `json:"value"`       // of the plan
	RelativeGap float64 `json:"relative_gap"`
	// BySearch says that branch and bound closed a part of the gap: then
	// lower_bound is above what the multipliers alone prove.
	BySearch bool `json:"by_search,omitzero"`
	Cleaned  int  `json:"cleaned_levels"` // levels dropped or lowered because KL rose with bytes or was negative

	RAMBytes  int64 `json:"ram_bytes"`           // limit for records, slots, ring and what the KV cache takes above its smallest
	DiskBytes int64 `json:"disk_bytes,omitzero"` // limit for the default records; 0: none
	TokenNs   int64 `json:"token_ns,omitzero"`   // limit for a token; 0: none
	// Charge is what streaming must save to be taken: KL that measurements
	// cannot tell. It counts as KL of plans that stream.
	Charge  int64 `json:"streaming_charge"`
	Classes int   `json:"classes"` // levels that the experts of a layer may take together
	// KVGiven says that the type of the KV cache was not for the planner to
	// choose.
	KVGiven bool       `json:"kv_cache_given,omitzero"`
	Modes   []ModeCase `json:"modes"`
}

// ModeCase is one way of streaming: which plans it is about, and bounds of
// what they lose, the best one at the certificate's limits first.
type ModeCase struct {
	RingMax   int64       `json:"ring_max_bytes"`   // no op streams more through the ring; 0: there is none
	RingLeast int64       `json:"ring_least_bytes"` // what the ring takes at least: an op streams more than the case before allows
	Slots     bool        `json:"slots"`            // experts may stream
	Bounds    []DualBound `json:"bounds"`
}

// DualBound is a bound and the prices that prove it, each in picoNats per
// 2^shift bytes or ns.
type DualBound struct {
	LowerBound int64 `json:"lower_bound"` // at the certificate's limits, charge excluded; may be below zero
	Shift      int   `json:"shift"`
	RAM        int64 `json:"ram"`
	Disk       int64 `json:"disk,omitzero"`
	Compute    int64 `json:"compute,omitzero"`
	Read       int64 `json:"read,omitzero"` // of reads ahead; demands cost both times
}

// Increments are an op's steps along the lower convex hull of its levels,
// ascending by bytes, for re-budgeting without the table. The levels of an
// expert are the classes of its layer, so that any mixture is legal.
type Increments struct {
	Op       string   `json:"op"`
	Levels   []string `json:"levels"`
	Bytes    []int64  `json:"bytes"`    // of each level
	PicoNats []int64  `json:"piconats"` // of each level
}
