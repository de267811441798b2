package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"substrate/pkg/doc"
)

// ropeFreqs is the tensor in which llama.cpp keeps the factors of llama3
// scaling, one for every pair of dimensions. It has the factors alone, not the
// parameters that they come from.
const ropeFreqs = "rope_freqs.weight"

// rope reads the rotary embedding's parameters. Those of llama3 scaling are
// found by [findLlama3].
func (c *ggufConfig) rope() doc.RoPE {
	rope := doc.RoPE{Type: "default", Theta: c.positive("rope.freq_base", 10000)}
	factor := c.positive("rope.scaling.factor", 1)
	c.integer("rope.scaling.original_context_length", 0, 0)
	c.value("rope.scaling.finetuned")
	kind := "none"
	if v, ok := c.value("rope.scaling.type"); ok {
		kind = v.text
	}
	switch kind {
	case "none":
	case "linear":
		rope.Type, rope.Factor = "linear", factor
	default:
		c.fail(c.prefix+"rope.scaling.type", "%q is not supported, only none and linear", kind)
	}
	return rope
}

// Parameters that every published model with llama3 scaling uses (Llama 3.1,
// 3.2, 3.3); only the factor differs.
const (
	llama3LowFreq  = 1
	llama3HighFreq = 4
	llama3Original = 8192
)

// llama3RoPE returns the parameters that give these factors. The largest is
// the factor itself, reached by the lowest frequencies.
func llama3RoPE(theta float64, factors []float32) (doc.RoPE, error) {
	rope := doc.RoPE{
		Theta: theta, Type: "llama3", Factor: 1,
		LowFreqFactor: llama3LowFreq, HighFreqFactor: llama3HighFreq, OriginalContext: llama3Original,
	}
	for _, f := range factors {
		rope.Factor = max(rope.Factor, float64(f))
	}
	for i, got := range factors {
		want := llama3Factor(&rope, i, 2*len(factors))
		if math.Abs(float64(got)-want) > 1e-3*want {
			return rope, fmt.Errorf("factor %d is %v, llama3 scaling by %v has %.6g: the scaling is of a kind that is not supported", i, got, rope.Factor, want)
		}
	}
	return rope, nil
}

// llama3Factor is what llama3 scaling divides frequency i of a head of dim
// dimensions by. Formula: transformers' _compute_llama3_parameters.
func llama3Factor(r *doc.RoPE, i, dim int) float64 {
	wavelength := 2 * math.Pi * math.Pow(r.Theta, float64(2*i)/float64(dim))
	original := float64(r.OriginalContext)
	switch {
	case wavelength < original/r.HighFreqFactor:
		return 1
	case wavelength > original/r.LowFreqFactor:
		return r.Factor
	}
	smooth := (original/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
	return 1 / ((1-smooth)/r.Factor + smooth)
}

// findLlama3 completes the architecture if the file has factors of llama3
// scaling.
func (m *Model) findLlama3(t table, a *doc.Architecture) error {
	info, ok := t[ropeFreqs]
	if !ok {
		return nil
	}
	f := m.files[info.file]
	fault := func(reason string) error {
		return &Error{File: f.name, Offset: info.offset, Key: "tensor " + ropeFreqs, Reason: reason}
	}
	if info.dtype != f32 || !fits(info.shape, []int64{int64(a.HeadDim / 2)}) {
		return fault(fmt.Sprintf("%s of %s: want [%d] of F32", formatShape(info.shape), info.typeName, a.HeadDim/2))
	}
	if a.RoPE.Type != "default" {
		return fault("is there beside " + a.RoPE.Type + " scaling")
	}
	raw := make([]byte, info.bytes)
	if err := f.readAt(raw, info.offset); err != nil {
		return err
	}
	factors := make([]float32, len(raw)/4)
	for i := range factors {
		factors[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	rope, err := llama3RoPE(a.RoPE.Theta, factors)
	if err != nil {
		return fault(err.Error())
	}
	if rope.Factor > 1 {
		a.RoPE = rope
	}
	return nil
}
