package model

import (
	"math"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// ropeConfig takes the rotary embedding's parameters: the object
// rope_parameters (transformers v5) or rope_scaling (v4), whose rope_theta may
// also stand beside it. The same precedence as in transformers'
// RotaryEmbeddingConfigMixin. It needs a.ContextTokens.
func ropeConfig(c *config, a *doc.Architecture, theta float64) {
	rope := &a.RoPE
	*rope = doc.RoPE{Type: "default", Theta: c.positive("rope_theta", theta)}
	c.only("partial_rotary_factor", "1.0", "1")
	object := "rope_parameters"
	if raw, ok := c.values["rope_scaling"]; ok {
		if _, both := c.values["rope_parameters"]; both && !jsonio.Equal(raw, c.values["rope_parameters"]) {
			c.fail("rope_scaling", "differs from rope_parameters, which is set too")
		}
		delete(c.values, "rope_parameters")
		object = "rope_scaling"
	}
	text, ok := c.values[object]
	if !ok {
		return
	}
	delete(c.values, object)
	in, err := newConfig(c.file, object+".", text)
	if err != nil {
		c.fail(object, "%v", err)
		return
	}
	in.take("type", &rope.Type) // before v4.43
	in.take("rope_type", &rope.Type)
	rope.Theta = in.positive("rope_theta", rope.Theta)
	in.only("partial_rotary_factor", "1.0", "1")
	switch rope.Type {
	case "default":
		in.only("factor", "1.0", "1")
	case "linear":
		rope.Factor = in.positive("factor", 0)
	case "llama3":
		rope.Factor = in.positive("factor", 0)
		rope.LowFreqFactor = in.positive("low_freq_factor", 0)
		rope.HighFreqFactor = in.positive("high_freq_factor", 0)
		rope.OriginalContext = in.integer("original_max_position_embeddings", a.ContextTokens, 1, doc.MaxContextTokens)
		if rope.LowFreqFactor >= rope.HighFreqFactor {
			in.fail("low_freq_factor", "%v is not below high_freq_factor %v", rope.LowFreqFactor, rope.HighFreqFactor)
		}
	case "yarn":
		yarnConfig(in, a)
	default:
		in.fail("rope_type", "%q is not supported, only default, linear, llama3 and yarn", rope.Type)
	}
	in.rest()
	if in.err != nil && c.err == nil {
		c.err = in.err
	}
}

// yarnConfig reads the parameters of YaRN (arXiv:2309.00071), as transformers'
// _compute_yarn_parameters. It multiplies sine and cosine, and so the product
// of a query and a key twice: that goes into the scale of attention.
func yarnConfig(in *config, a *doc.Architecture) {
	rope := &a.RoPE
	rope.Factor = in.positive("factor", 0)
	rope.OriginalContext = in.integer("original_max_position_embeddings", a.ContextTokens, 1, doc.MaxContextTokens)
	rope.BetaFast = in.positive("beta_fast", 32)
	rope.BetaSlow = in.positive("beta_slow", 1)
	rope.Truncate = in.boolean("truncate", true)
	if rope.BetaFast < rope.BetaSlow {
		in.fail("beta_fast", "%v is below beta_slow %v", rope.BetaFast, rope.BetaSlow)
	}
	if rope.Theta == 1 {
		in.fail("rope_theta", "1 has no frequencies to scale")
	}
	mscale := func(m float64) float64 {
		if rope.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(rope.Factor) + 1
	}
	var own, all float64
	in.take("mscale", &own)
	in.take("mscale_all_dim", &all)
	factor := mscale(1)
	if own != 0 && all != 0 {
		factor = mscale(own) / mscale(all)
	}
	if factor = in.positive("attention_factor", factor); factor != 1 {
		a.AttentionScale = factor * factor
	}
}
