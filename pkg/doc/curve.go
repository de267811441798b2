package doc

// CurvePoint is one line of a curve: what a budget makes of a table.
type CurvePoint struct {
	Format            string        `json:"format"`
	Synthetic         bool          `json:"synthetic,omitzero"`
	MaxRAMBytes       int64         `json:"max_ram_bytes"`
	Infeasible        string        `json:"infeasible,omitempty"` // the axis on which nothing fits; then the rest is empty
	KL                float64       `json:"kl"`                   // nats per token, of the default path
	UniformKL         *float64      `json:"uniform_kl,omitempty"` // of the best single encoding at equal bytes
	RelativeGap       float64       `json:"relative_gap"`         // of the sum of KLs, to what no plan undercuts
	TokensPerSec      float64       `json:"tokens_per_second"`
	ReadBytesPerToken int64         `json:"read_bytes_per_token"`
	BitsPerWeight     float64       `json:"bits_per_weight"`
	KVCacheType       string        `json:"kv_cache_type"`
	Streams           bool          `json:"streams"`
	Knee              bool          `json:"knee"` // the logarithm of KL falls 1.5 times as steeply before as behind
	Changes           []CurveChange `json:"changes"`
}

// CurveChange is what becomes of ops of one kind from the point before.
type CurveChange struct {
	Kind Kind   `json:"kind,omitempty"` // empty: the KV cache
	From string `json:"from"`           // a level; "streamed " before it if it is not wholly resident
	To   string `json:"to"`
	Ops  int    `json:"ops"`
}

// Validate checks that numbers are sound.
func (p *CurvePoint) Validate() error {
	var c checker
	if !validInteger(p.MaxRAMBytes, 1) || !validInteger(p.ReadBytesPerToken, 0) {
		c.fail(at("max_ram_bytes"), "%d, %d read per token: want integers up to 2^53", p.MaxRAMBytes, p.ReadBytesPerToken)
	}
	for _, n := range []struct {
		name  string
		value float64
	}{{"kl", p.KL}, {"relative_gap", p.RelativeGap}, {"tokens_per_second", p.TokensPerSec}, {"bits_per_weight", p.BitsPerWeight}} {
		if !validNumber(n.value, 0) {
			c.fail(at(n.name), "%v: want a finite number, not negative", n.value)
		}
	}
	return c.err
}
