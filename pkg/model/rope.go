package model

import (
	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// ropeConfig takes the rotary embedding's parameters: the object
// rope_parameters (transformers v5) or rope_scaling (v4), whose rope_theta may
// also stand beside it. The same precedence as in transformers'
// RotaryEmbeddingConfigMixin.
func ropeConfig(c *config, context int) doc.RoPE {
	rope := doc.RoPE{Type: "default", Theta: c.positive("rope_theta", 10000)}
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
		return rope
	}
	delete(c.values, object)
	in, err := newConfig(c.file, object+".", text)
	if err != nil {
		c.fail(object, "%v", err)
		return rope
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
		rope.OriginalContext = in.integer("original_max_position_embeddings", context, 1, doc.MaxContextTokens)
		if rope.LowFreqFactor >= rope.HighFreqFactor {
			in.fail("low_freq_factor", "%v is not below high_freq_factor %v", rope.LowFreqFactor, rope.HighFreqFactor)
		}
	default:
		in.fail("rope_type", "%q is not supported, only default, linear and llama3", rope.Type)
	}
	in.rest()
	if in.err != nil && c.err == nil {
		c.err = in.err
	}
	return rope
}
