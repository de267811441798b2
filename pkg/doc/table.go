package doc

// Sources of a number: measured here, derived from measured ones, or a prior.
const (
	SourceMeasured  = "measured"
	SourceSplit     = "split" // a measured group's value, divided among its members
	SourcePrior     = "prior"
	SourceSynthetic = "synthetic"
	SourceDefault   = "default" // of a machine: conservative numbers, nothing measured
)

// Table is what sb-calibrate measures of a model: for every item and level
// the bytes it costs and the quality it loses.
type Table struct {
	Format     string       `json:"format"`
	Synthetic  bool         `json:"synthetic,omitzero"`
	Profile    Profile      `json:"profile"`
	WeightsSHA string       `json:"weights_sha256,omitempty"` // content digest of the weights
	Statistics string       `json:"statistics_sha256,omitempty"`
	Data       []DataPart   `json:"data"`
	Encodings  []Encoding   `json:"encodings"`
	Levels     []Level      `json:"levels"`
	Floor      float64      `json:"kl_floor"`                     // KL of an A/A run: smaller values mean nothing
	Int8KL     float64      `json:"int8_activations_kl,omitzero"` // KL that int8 activations add to a whole model in codes
	KVCaches   []KVLoss     `json:"kv_caches,omitempty"`          // what the types of KV cache lose; the others were not measured
	Items      []Item       `json:"items"`                        // one per op that owns a record, in profile order
	Reuse      []ReuseCurve `json:"reuse_curves"`
	Link       Link         `json:"link"`
	Notes      Annotations  `json:"annotations,omitempty"`
}

// DataPart is one part of the text that was used.
type DataPart struct {
	Name   string `json:"name"`
	Part   string `json:"part"` // "codes", "fit", "link", "test"
	SHA256 string `json:"sha256"`
	Tokens int64  `json:"tokens"`
}

// KVLoss is what a type of KV cache loses, every op at the reference.
type KVLoss struct {
	Type    string  `json:"type"`     // of the profile's kv_caches
	KL      float64 `json:"kl"`       // nats per token
	KLError float64 `json:"kl_error"` // standard error over documents
	Source  string  `json:"source"`
}

// Item is what the planner decides on: an op that owns a record.
type Item struct {
	Op       string      `json:"op"`
	GateMass float64     `json:"gate_mass,omitzero"` // experts: mean over tokens of the normalised router weight, summed over a layer to 1
	HitShare float64     `json:"hit_share,omitzero"` // experts: share of tokens that route here; sums to experts_per_token over a layer
	Levels   []ItemLevel `json:"levels"`             // any order; the planner cleans and sorts
}

// ItemLevel is the cost of one item at one level, every other op at the
// reference.
type ItemLevel struct {
	Level     string  `json:"level"`
	RAMBytes  int64   `json:"ram_bytes"`  // all records of the level, as resident
	DiskBytes int64   `json:"disk_bytes"` // the same, as stored
	KL        float64 `json:"kl"`         // nats per token added
	KLError   float64 `json:"kl_error"`   // standard error over documents
	Source    string  `json:"source"`
}

// ReuseCurve gives the hit rate of an LRU cache of slots experts in one
// layer, measured on held-out routing in decode order.
type ReuseCurve struct {
	Layer   int       `json:"layer"`
	HitRate []float64 `json:"hit_rate"` // index: slots, 0..experts
	// UpgradeRate is the share of squared gate whose expert has its upgrade in
	// one of so many slots, where slots change hands every 16 tokens, 4 tokens
	// ahead, to the experts used last; absent where it was not measured.
	UpgradeRate []float64 `json:"upgrade_rate,omitempty"`
}

// Link maps the sum of item KLs to the KL of a whole plan:
// KL = scale * sum^exponent. Additive is scale 1, exponent 1.
type Link struct {
	Source   string  `json:"source"` // "additive" or "fitted"
	Scale    float64 `json:"scale"`
	Exponent float64 `json:"exponent"`
	Plans    int     `json:"plans"` // whole plans it was fitted on
	Error    float64 `json:"relative_error"`
}
