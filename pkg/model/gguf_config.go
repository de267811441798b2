package model

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"substrate/pkg/doc"
)

func (m *Model) openGGUF() error {
	f, err := m.openFile(m.path)
	if err != nil {
		return err
	}
	h, err := readGGUF(f)
	if err != nil {
		return err
	}
	stem, err := m.joinSplit(h)
	if err != nil {
		return err
	}
	if err := m.describeGGUF(f, h); err != nil {
		return err
	}
	m.profile.ModelID = modelID(stem)
	return nil
}

// describeGGUF makes the profile of an open file and its header.
func (m *Model) describeGGUF(f *file, h *ggufHeader) error {
	c := &ggufConfig{h: h, taken: map[string]bool{}}
	family, a := c.architecture()
	if c.err != nil {
		return c.err
	}
	if err := checkArchitecture(f.name, &a); err != nil {
		return err
	}
	if err := m.findLlama3(h.tensors, &a); err != nil {
		return err
	}
	m.tensors = h.tensors
	m.profile = newProfile(modelID(m.path), family, &a, ggufNames{permuted: family == "llama"})
	m.profile.HeaderSHA256 = h.digest
	m.profile.Tokenizer = h.tokenizer
	var err error
	if m.vocab, err = h.vocab(); err != nil {
		return err
	}
	if err := bind(f.name, m.profile, m.tensors, func(name string) bool { return name == ropeFreqs }); err != nil {
		return err
	}
	return validate(f.name, m.profile)
}

// ggufConfig reads an architecture from metadata. The first error stays.
type ggufConfig struct {
	h      *ggufHeader
	prefix string // "llama."
	taken  map[string]bool
	err    error
}

func (c *ggufConfig) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{File: c.h.file, Offset: -1, Key: key, Reason: fmt.Sprintf(format, args...)}
	}
}

// value finds a key of the architecture.
func (c *ggufConfig) value(key string) (ggufValue, bool) {
	c.taken[c.prefix+key] = true
	v, ok := c.h.metadata[c.prefix+key]
	return v, ok
}

// integer returns a number, fallback if it is not there; a negative fallback
// says that it must be.
func (c *ggufConfig) integer(key string, fallback, low int) int {
	v, ok := c.value(key)
	if !ok {
		if fallback < 0 {
			c.fail(c.prefix+key, "missing")
		}
		return max(fallback, low)
	}
	n, ok := v.integer()
	if !ok || n < int64(low) || n > doc.MaxDimension {
		c.fail(c.prefix+key, "%s: want a number from %d to %d", v, low, doc.MaxDimension)
		return low
	}
	return int(n)
}

// positive returns a number above 0, fallback if it is not there.
func (c *ggufConfig) positive(key string, fallback float64) float64 {
	v, ok := c.value(key)
	if !ok {
		return fallback
	}
	x, ok := v.float()
	if !ok || !(x > 0) || math.IsInf(x, 0) {
		c.fail(c.prefix+key, "%s: want a number above 0", v)
		return 1
	}
	return x
}

// token returns a token id, -1 if it is not there. llama.cpp writes "none" as
// 2^32-1.
func (c *ggufConfig) token(key string) int {
	v, ok := c.h.metadata[key]
	if !ok {
		return -1
	}
	n, ok := v.integer()
	if !ok || n < 0 || n >= doc.MaxDimension {
		return -1
	}
	return int(n)
}

func (v ggufValue) integer() (int64, bool) {
	switch v.kind {
	case ggufUint8, ggufInt8, ggufUint16, ggufInt16, ggufUint32, ggufInt32, ggufInt64, ggufBool:
		return int64(v.bits), true
	case ggufUint64:
		return int64(v.bits), v.bits <= math.MaxInt64
	}
	return 0, false
}

func (v ggufValue) float() (float64, bool) {
	if v.kind == ggufFloat32 || v.kind == ggufFloat64 {
		return math.Float64frombits(v.bits), true
	}
	n, ok := v.integer()
	return float64(n), ok
}

// String shows a value in a message.
func (v ggufValue) String() string {
	switch v.kind {
	case ggufString:
		return fmt.Sprintf("%.60q", v.text)
	case ggufArray:
		return fmt.Sprintf("an array of %d", v.count)
	}
	x, _ := v.float()
	return fmt.Sprint(x)
}

// architecture translates the metadata into what a config.json of the same
// model says.
func (c *ggufConfig) architecture() (name string, a doc.Architecture) {
	meta := c.h.metadata
	if v, ok := meta["general.type"]; ok && v.text != "model" {
		c.fail("general.type", "%s is not supported, only a model", v)
	}
	own := meta["general.architecture"].text
	c.prefix = own + "."
	known := families()
	known = slices.DeleteFunc(known, func(f family) bool { return f.gguf == "" })
	if i := slices.IndexFunc(known, func(f family) bool { return f.gguf == own }); i >= 0 {
		name, a = known[i].name, known[i].ggufArchitecture(c)
	} else {
		var names []string
		for _, f := range known {
			names = append(names, f.gguf)
		}
		c.fail("general.architecture", "%q is not supported, only %s", own, list(names))
		return "", a
	}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if strings.HasPrefix(key, c.prefix) && !c.taken[key] {
			c.fail(key, "unknown key with value %s might change the maths", meta[key])
		}
	}
	return name, a
}

// common reads what the families share.
func (c *ggufConfig) common() doc.Architecture {
	a := doc.Architecture{
		HiddenSize:    c.integer("embedding_length", -1, 1),
		Layers:        c.integer("block_count", -1, 1),
		Heads:         c.integer("attention.head_count", -1, 1),
		ContextTokens: c.integer("context_length", -1, 1),
		NormEps:       c.positive("attention.layer_norm_rms_epsilon", 1e-6),
	}
	if a.Layers > doc.MaxLayers {
		c.fail(c.prefix+"block_count", "%d layers are more than any model has", a.Layers)
	}
	a.KVHeads = c.integer("attention.head_count_kv", a.Heads, 1)
	a.HeadDim = c.integer("attention.key_length", max(a.HiddenSize/a.Heads, 1), 1)
	if n := c.integer("attention.value_length", a.HeadDim, 1); n != a.HeadDim {
		c.fail(c.prefix+"attention.value_length", "%d differs from the key length %d", n, a.HeadDim)
	}
	if n := c.integer("rope.dimension_count", a.HeadDim, 1); n != a.HeadDim {
		c.fail(c.prefix+"rope.dimension_count", "%d of %d dimensions: partial rotary embedding is not supported", n, a.HeadDim)
	}
	a.RoPE = c.rope()
	embedding := c.h.tensors["token_embd.weight"]
	vocab := -1
	if len(embedding.shape) == 2 && embedding.shape[0] > 0 && embedding.shape[0] <= doc.MaxDimension {
		vocab = int(embedding.shape[0])
	}
	a.VocabSize = c.integer("vocab_size", vocab, 1)
	_, untied := c.h.tensors["output.weight"]
	a.TiedEmbedding = !untied
	a.BOS = c.token("tokenizer.ggml.bos_token_id")
	for _, key := range []string{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"} {
		if id := c.token(key); id >= 0 && !slices.Contains(a.EOS, id) {
			a.EOS = append(a.EOS, id)
		}
	}
	return a
}

// biases looks whether attention has biases.
func (c *ggufConfig) biases(a *doc.Architecture) {
	_, a.AttentionBias = c.h.tensors["blk.0.attn_q.bias"]
	_, a.AttentionOBias = c.h.tensors["blk.0.attn_output.bias"]
}
