package doc

import "slices"

// Validate checks that the profile is well formed: sizes are sound, ids are
// unique, layers and experts exist, shared records resolve.
func (p *Profile) Validate() error {
	var c checker
	for _, h := range []struct{ name, value string }{{"header_sha256", p.HeaderSHA256}, {"tokenizer_sha256", p.Tokenizer}} {
		if h.value != "" && !validHash(h.value) {
			c.fail(at(h.name), "%q is not a sha256 in lower-case hex", h.value)
		}
	}
	if !validInteger(p.Parameters, 0) {
		c.fail(at("parameters"), "%d: want 0 to 2^53", p.Parameters)
	}
	p.Architecture.validate(&c)
	if c.err != nil {
		return c.err
	}
	p.validateKVCaches(&c)
	if len(p.Ops) == 0 {
		c.fail(at("ops"), "no ops: want at least one")
	}
	index := make(map[string]int, len(p.Ops))
	for i := range p.Ops {
		p.validateOp(&c, i, index)
		if c.err != nil {
			return c.err
		}
		index[p.Ops[i].ID] = i
	}
	return c.err
}

func (p *Profile) validateKVCaches(c *checker) {
	types := map[string]bool{}
	for i := range p.KVCaches {
		kv := &p.KVCaches[i]
		if kv.Type == "" || types[kv.Type] {
			c.fail(at("kv_caches", i, "type"), "cache type %q occurs twice or is empty", kv.Type)
		}
		types[kv.Type] = true
		if kv.BytesPerTokenPerLayer < 0 || kv.BytesPerTokenPerLayer > 1<<32 {
			c.fail(at("kv_caches", i, "bytes_per_token_per_layer"), "%d: want 0 to 2^32", kv.BytesPerTokenPerLayer)
		}
	}
	if len(p.KVCaches) == 0 {
		c.fail(at("kv_caches"), "no cache types: want at least one")
	}
}

// validateOp checks op i; index has the ops before it.
func (p *Profile) validateOp(c *checker, i int, index map[string]int) {
	op := &p.Ops[i]
	if _, twice := index[op.ID]; twice || op.ID == "" {
		c.fail(at("ops", i, "id"), "op %q occurs twice or is empty", op.ID)
		return
	}
	if !validKind(op.Kind) {
		c.fail(at("ops", i, "kind"), "op %q is of kind %q, which is not known here", op.ID, op.Kind)
	}
	if op.Layer < -1 || op.Layer >= p.Architecture.Layers || op.Layer != OpLayer(op.ID) {
		c.fail(at("ops", i, "layer"), "op %q is of layer %d: want the layer of its id, below %d", op.ID, op.Layer, p.Architecture.Layers)
	}
	if expert := op.Kind == KindMoEExpert; expert != (op.Expert >= 0) || op.Expert < -1 || op.Expert >= max(1, p.Architecture.Experts) {
		c.fail(at("ops", i, "expert"), "op %q of kind %s has expert %d: want -1, or an index below %d for an expert", op.ID, op.Kind, op.Expert, p.Architecture.Experts)
	}
	if !validInteger(op.Parameters, 0) || !validInteger(op.FlopsPerToken, 0) {
		c.fail(at("ops", i), "op %q has %d parameters and %d flops: want 0 to 2^53", op.ID, op.Parameters, op.FlopsPerToken)
	}
	if op.Shares != "" {
		// The op whose record is shared comes first: an embedding before its head.
		if j, ok := index[op.Shares]; !ok || p.Ops[j].Shares != "" || len(op.Tensors) != 0 {
			c.fail(at("ops", i, "shares"), "op %q shares the record of %q: want an op before it that owns one, and no tensors of its own", op.ID, op.Shares)
		}
	}
	roles := make([]string, 0, len(op.Tensors))
	for j := range op.Tensors {
		t := &op.Tensors[j]
		if t.Role == "" || slices.Contains(roles, t.Role) {
			c.fail(at("ops", i, "tensors", j, "role"), "op %q: role %q occurs twice or is empty", op.ID, t.Role)
		}
		roles = append(roles, t.Role)
		if t.Rows < 1 || t.Rows > MaxDimension || t.Cols < 1 || t.Cols > MaxDimension {
			c.fail(at("ops", i, "tensors", j), "op %q role %s is [%d, %d]: want 1 to %d", op.ID, t.Role, t.Rows, t.Cols, MaxDimension)
		}
		if t.Source.Index < -1 {
			c.fail(at("ops", i, "tensors", j, "source", "index"), "%d: want -1 or an index", t.Source.Index)
		}
	}
}

func (a *Architecture) validate(c *checker) {
	for _, d := range []struct {
		name     string
		value    int
		low, max int
	}{
		{"hidden_size", a.HiddenSize, 1, MaxDimension},
		{"layers", a.Layers, 0, MaxLayers},
		{"heads", a.Heads, 1, 1 << 16},
		{"kv_heads", a.KVHeads, 1, 1 << 16},
		{"head_dim", a.HeadDim, 1, 1 << 16},
		{"intermediate_size", a.IntermediateSize, 0, MaxDimension},
		{"vocab_size", a.VocabSize, 1, MaxDimension},
		{"context_tokens", a.ContextTokens, 1, MaxContextTokens},
		{"experts", a.Experts, 0, MaxExperts},
		{"experts_per_token", a.ExpertsPerToken, 0, a.Experts},
		{"expert_size", a.ExpertSize, 0, MaxDimension},
		{"bos_token_id", a.BOS, -1, MaxDimension},
		{"sliding_window", a.SlidingWindow, 0, MaxContextTokens},
	} {
		if d.value < d.low || d.value > d.max {
			c.fail(at("architecture", d.name), "%d: want %d to %d", d.value, d.low, d.max)
		}
	}
	if c.err == nil && a.Heads%a.KVHeads != 0 {
		c.fail(at("architecture", "kv_heads"), "%d heads are not a multiple of %d kv_heads", a.Heads, a.KVHeads)
	}
	if !validNumber(a.NormEps, 0) {
		c.fail(at("architecture", "norm_eps"), "%v: want a finite number, not negative", a.NormEps)
	}
	for i, l := range a.MoELayers {
		if l < 0 || l >= a.Layers || i > 0 && a.MoELayers[i-1] >= l {
			c.fail(at("architecture", "moe_layers", i), "layer %d: want ascending layers below %d", l, a.Layers)
		}
	}
	if len(a.MoELayers) > 0 && a.ExpertsPerToken < 1 {
		c.fail(at("architecture", "experts_per_token"), "%d: want at least 1 where moe_layers are named", a.ExpertsPerToken)
	}
	for i, e := range a.EOS {
		if e < 0 || e > MaxDimension {
			c.fail(at("architecture", "eos_token_ids", i), "%d: want a token id", e)
		}
	}
	r := &a.RoPE
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"theta", r.Theta}, {"factor", r.Factor}, {"low_freq_factor", r.LowFreqFactor}, {"high_freq_factor", r.HighFreqFactor},
	} {
		if !validNumber(n.value, 0) {
			c.fail(at("architecture", "rope", n.name), "%v: want a finite number, not negative", n.value)
		}
	}
}
