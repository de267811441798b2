package doc

import (
	"math"
	"slices"
)

// Verify is what sb-calibrate verify measures of a plan or a store: the
// distance of its next-token distributions from the reference, teacher-forced
// on text that no part of the plan has seen.
type Verify struct {
	Format      string          `json:"format"`
	Synthetic   bool            `json:"synthetic,omitzero"`
	ModelID     string          `json:"model_id"`
	Reference   string          `json:"reference"` // what KL is measured against
	Target      string          `json:"target"`    // "plan", "store"
	Mode        string          `json:"mode"`      // "static": every op at one tier; "scheduled" or "exact": as sb-run runs it
	Tier        string          `json:"tier"`      // "default" or "top"
	Backend     string          `json:"backend"`
	Activations string          `json:"activations"`
	KVCacheType string          `json:"kv_cache_type"`
	Data        DataPart        `json:"data"`
	Documents   int             `json:"documents"`
	Quality     Quality         `json:"quality"`
	Run         *VerifyRun      `json:"run,omitempty"` // what a run in the mode did; absent for "static"
	Predicted   *Prediction     `json:"predicted,omitempty"`
	InBand      bool            `json:"in_band"`  // measured KL is inside the predicted band, widened by two standard errors
	Controls    []VerifyControl `json:"controls"` // uniform encodings on the same text, ascending by bytes
	// UniformKL is the KL of uniform encodings at the target's bytes,
	// interpolated in log KL between its neighbours among Controls; absent
	// where the target is not between two.
	UniformKL   *float64    `json:"uniform_kl,omitempty"`
	Annotations Annotations `json:"annotations,omitempty"`
}

// VerifyRun is what a run did while its quality was measured.
type VerifyRun struct {
	ResidentBytes     int64   `json:"resident_bytes"`       // weights, slots and ring
	ReadBytesPerToken int64   `json:"read_bytes_per_token"` // after the first token of every sequence
	BitsServed        float64 `json:"bits_served"`          // per weight of the records that computed, by gate mass
}

// Quality is a measured distance from the reference.
type Quality struct {
	KL              float64 `json:"kl"`       // nats per token
	KLError         float64 `json:"kl_error"` // standard error over documents
	KLMedian        float64 `json:"kl_median"`
	KL999           float64 `json:"kl_p999"` // 99.9th percentile over tokens
	Perplexity      float64 `json:"perplexity"`
	PerplexityDelta float64 `json:"perplexity_delta"` // less the reference's
	SameTop         float64 `json:"same_top"`         // share of tokens with the reference's first choice
	ConfidentFlips  float64 `json:"confident_flips"`  // share whose first choice changed although the reference's margin exceeded 0.10
	Bytes           int64   `json:"bytes"`            // all records that the measured tier needs
	BitsPerWeight   float64 `json:"bits_per_weight"`  // 8 * bytes / parameters
}

// VerifyControl is a uniform encoding measured beside the target.
type VerifyControl struct {
	Encoding string  `json:"encoding"`
	Quality  Quality `json:"quality"`
}

func (v *Verify) formats() (string, string) { return v.Format, FormatVerify }

// Validate checks that every number is one that can be measured.
func (v *Verify) Validate() error {
	var c checker
	if v.Tier != "default" && v.Tier != "top" {
		c.fail(at("tier"), "%q: want \"default\" or \"top\"", v.Tier)
	}
	switch v.Mode {
	case "static":
		if v.Run != nil {
			c.fail(at("run"), "mode static is not a run")
		}
	case "scheduled", "exact":
		if r := v.Run; r == nil {
			c.fail(at("run"), "missing for mode %s", v.Mode)
		} else if !validInteger(r.ResidentBytes, 1) || !validInteger(r.ReadBytesPerToken, 0) || !validNumber(r.BitsServed, 0) {
			c.fail(at("run"), "%d resident bytes, %d read per token, %g bits served: want numbers that are not negative", r.ResidentBytes, r.ReadBytesPerToken, r.BitsServed)
		}
	default:
		c.fail(at("mode"), "%q: want \"static\", \"scheduled\" or \"exact\"", v.Mode)
	}
	if !validInteger(v.Data.Tokens, 1) || v.Documents < 1 {
		c.fail(at("data"), "%d tokens of %d documents: want positive numbers", v.Data.Tokens, v.Documents)
	}
	v.Quality.check(&c, "quality")
	for i := range v.Controls {
		v.Controls[i].Quality.check(&c, "controls", i, "quality")
		if i > 0 && v.Controls[i-1].Quality.Bytes > v.Controls[i].Quality.Bytes {
			c.fail(at("controls", i), "%d bytes after more: want them ascending", v.Controls[i].Quality.Bytes)
		}
	}
	if v.UniformKL != nil && !validNumber(*v.UniformKL, 0) {
		c.fail(at("uniform_kl"), "%g: want a number from 0 up", *v.UniformKL)
	}
	return c.err
}

func (q *Quality) check(c *checker, path ...any) {
	for _, n := range []struct {
		name  string
		value float64
		most  float64
	}{
		{"kl", q.KL, math.MaxFloat64}, {"kl_error", q.KLError, math.MaxFloat64}, {"kl_median", q.KLMedian, math.MaxFloat64},
		{"kl_p999", q.KL999, math.MaxFloat64}, {"perplexity", q.Perplexity, math.MaxFloat64}, {"same_top", q.SameTop, 1},
		{"confident_flips", q.ConfidentFlips, 1}, {"bits_per_weight", q.BitsPerWeight, 64},
	} {
		if !validNumber(n.value, 0) || n.value > n.most {
			c.fail(append(slices.Clone(path), n.name), "%g: want a number from 0 to %g", n.value, n.most)
		}
	}
	if !finite(q.PerplexityDelta) {
		c.fail(append(slices.Clone(path), "perplexity_delta"), "%g is not finite", q.PerplexityDelta)
	}
	if !validInteger(q.Bytes, 1) {
		c.fail(append(slices.Clone(path), "bytes"), "%d: want 1 to 2^53", q.Bytes)
	}
}
