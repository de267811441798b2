package doc

// Types of trace lines. Every line of a trace has type, t_ns (monotonic,
// since the run's start) and token: the index of the generated token being
// computed. Loading is token -1, a prefill is part of the token that it ends
// with: 0, and in a chat the first one of each answer.
const (
	TraceRunStart = "run_start"
	TraceToken    = "token"
	TraceOp       = "op"
	TraceTier     = "tier"
	TraceRead     = "read"
	TraceSlot     = "slot"
	TraceSignal   = "signal"
	TraceFallback = "fallback"
	TraceMemory   = "memory"
	TraceRunEnd   = "run_end"
)

// TraceHead begins every line.
type TraceHead struct {
	Type  string `json:"type"`
	TNs   int64  `json:"t_ns"`
	Token int64  `json:"token"`
}

// RunStart is the first line of a trace.
type RunStart struct {
	TraceHead
	Format       string       `json:"format"`
	Synthetic    bool         `json:"synthetic,omitzero"`
	Volume       string       `json:"volume"` // "token": without lines of ops, reads and slots; "full"
	ModelID      string       `json:"model_id"`
	Manifest     string       `json:"manifest_sha256"`
	Plan         string       `json:"plan"`
	Mode         string       `json:"mode"` // "scheduled", "exact", "fastest"
	Backend      string       `json:"backend"`
	Activations  string       `json:"activations"`
	CPUPath      string       `json:"cpu_path"`
	Threads      int          `json:"threads"`
	Seed         int64        `json:"seed"`
	CapBytes     int64        `json:"cap_bytes"`
	CapSource    string       `json:"cap_source"` // "flag", "plan", "auto"
	Enforced     string       `json:"enforced"`   // "cgroup", "none": what would stop a breach from outside
	DirectReads  bool         `json:"direct_reads"`
	PromptTokens int          `json:"prompt_tokens"`
	Ledger       []LedgerLine `json:"ledger"`
	Predicted    Prediction   `json:"predicted"`
}

// TokenLine ends one step: a prefill chunk or one decoded token.
type TokenLine struct {
	TraceHead
	Phase      string `json:"phase"` // "prefill" or "decode"
	Tokens     int    `json:"tokens"`
	ID         int32  `json:"id"` // the sampled token, -1 if none
	TimeNs     int64  `json:"time_ns"`
	WaitNs     int64  `json:"wait_ns"` // of it, waiting for reads
	ReadBytes  int64  `json:"read_bytes"`
	LogitsHash string `json:"logits_sha256,omitempty"` // first 16 hex digits, of the float32 bits
}

// OpLine is one op of one step.
type OpLine struct {
	TraceHead
	Op     string `json:"op"`
	Tier   int    `json:"tier"`
	TimeNs int64  `json:"time_ns"`
	WaitNs int64  `json:"wait_ns"`
}

// TierLine is one change of an op's active tier.
type TierLine struct {
	TraceHead
	Op           string  `json:"op"`
	From         int     `json:"from"`
	To           int     `json:"to"`
	Reason       string  `json:"reason"` // "escalate", "decay", "evict", "demote_all"
	Disagreement float64 `json:"disagreement"`
	PoolUsed     int64   `json:"pool_used_bytes"`
}

// ReadLine is one finished read.
type ReadLine struct {
	TraceHead
	Record  string `json:"record"`
	Class   string `json:"class"` // "load", "demand", "prefetch", "promotion", "look_ahead"
	Bytes   int64  `json:"bytes"` // read from the file
	QueueNs int64  `json:"queue_ns"`
	TimeNs  int64  `json:"time_ns"`
	Late    bool   `json:"late,omitzero"`
}

// SlotLine is one change of a slot.
type SlotLine struct {
	TraceHead
	Layer   int    `json:"layer"`
	Slot    int    `json:"slot"`
	Record  string `json:"record"`
	Evicted string `json:"evicted,omitempty"`
}

// SignalLine is one signal of the runtime monitor.
type SignalLine struct {
	TraceHead
	Signal   string  `json:"signal"` // "LATENCY_WARN", "LATENCY_CRITICAL", "SSD_BW_CRITICAL"
	Measured float64 `json:"measured"`
	Expected float64 `json:"expected"`
	Acted    bool    `json:"acted"`
}

// FallbackLine is one decision about records that missed their deadline, in
// mode fastest.
type FallbackLine struct {
	TraceHead
	Op       string `json:"op"`
	Tier     int    `json:"tier"` // whose records were late
	Strategy string `json:"strategy"`
}

// MemoryLine is a sample of the process's memory.
type MemoryLine struct {
	TraceHead
	ResidentBytes  int64 `json:"resident_bytes"`
	AnonymousBytes int64 `json:"anonymous_bytes"`
	PeakBytes      int64 `json:"peak_bytes"` // VmHWM or phys_footprint peak
	HeapBytes      int64 `json:"go_heap_bytes"`
	// SwapBytes is what of the process is swapped out, PressureNs how long
	// processes of its cgroup or machine have waited for memory since the run
	// began: pressure from outside, where the system tells.
	SwapBytes  int64 `json:"swap_bytes,omitzero"`
	PressureNs int64 `json:"pressure_ns,omitzero"`
	// Of a backend with an allocator of its own: buffers in use, slabs
	// included, freed ones that it keeps, and the most ever in use.
	BackendActiveBytes int64 `json:"backend_active_bytes,omitzero"`
	BackendCacheBytes  int64 `json:"backend_cache_bytes,omitzero"`
	BackendPeakBytes   int64 `json:"backend_peak_bytes,omitzero"`
}

// RunEnd is the last line of a trace.
type RunEnd struct {
	TraceHead
	Exit            int     `json:"exit"`
	Reason          string  `json:"reason"` // "stop_token", "stop_string", "max_tokens", "context_full", "interrupted", "error"
	Tokens          int64   `json:"tokens"` // decoded
	DecodeNs        int64   `json:"decode_ns"`
	PrefillNs       int64   `json:"prefill_ns"`
	PeakBytes       int64   `json:"peak_bytes"`
	CapBytes        int64   `json:"cap_bytes"`
	ReadBytes       int64   `json:"read_bytes"`             // all reads of records, load included
	DecodeReadBytes int64   `json:"decode_read_bytes"`      // after the first token: of lines with token >= 1
	NeededBytes     int64   `json:"needed_bytes_per_token"` // record bytes that one decoded token's kernels read
	BitsServed      float64 `json:"bits_served"`            // mean bits per weight of what ran, weighted by gate mass
	Digest          string  `json:"digest"`                 // of the sampled ids and every logits hash
}
