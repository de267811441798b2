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
		p.validateShapes(&c, i)
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
		if part := t.Source.Part; part != nil && !part.fits(t.Rows, t.Cols) {
			c.fail(at("ops", i, "tensors", j, "source", "part"), "op %q role %s: [%d, %d] is no such part", op.ID, t.Role, t.Rows, t.Cols)
		}
	}
}

// validateShapes checks that an op's tensors are those that the architecture
// gives an op of its kind: what computes with them takes their sizes from it.
func (p *Profile) validateShapes(c *checker, i int) {
	op := &p.Ops[i]
	if c.err != nil || op.Shares != "" {
		return
	}
	want := p.Architecture.Shapes(op.Kind)
	for j, w := range want {
		if j >= len(op.Tensors) || op.Tensors[j].Role != w.Role {
			c.fail(at("ops", i, "tensors"), "op %q of kind %s has %d tensors: the architecture wants role %s at place %d", op.ID, op.Kind, len(op.Tensors), w.Role, j)
			return
		}
		if t := &op.Tensors[j]; t.Rows != w.Rows || t.Cols != w.Cols || t.Keep != w.Keep {
			c.fail(at("ops", i, "tensors", j), "op %q role %s is [%d, %d], keep %t: by the architecture it is [%d, %d], keep %t", op.ID, t.Role, t.Rows, t.Cols, t.Keep, w.Rows, w.Cols, w.Keep)
		}
	}
	if len(op.Tensors) > len(want) {
		c.fail(at("ops", i, "tensors", len(want)), "op %q of kind %s has no role %s in this architecture", op.ID, op.Kind, op.Tensors[len(want)].Role)
	}
}

// fits reports whether a tensor of [rows, cols] can be this part.
func (p *SourcePart) fits(rows, cols int) bool {
	if p.Rows < 1 || p.Rows > MaxDimension || p.Cols < 1 || p.Cols > MaxDimension || p.Period < 1 || p.Rows%p.Period != 0 ||
		p.Count < 1 || p.First < 0 || p.First > p.Period-p.Count {
		return false
	}
	pieces := p.Rows / p.Period
	switch {
	case p.Transposed:
		return rows == pieces*p.Cols && cols == p.Count
	case p.Cols == 1 && rows == 1: // a vector
		return cols == pieces*p.Count
	}
	return rows == pieces*p.Count && cols == p.Cols
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
		{"shared_size", a.SharedSize, 0, MaxDimension},
		{"route_groups", a.RouteGroups, 0, min(a.Experts, MaxRouteGroups)},
		{"route_top_groups", a.RouteTopGroups, min(a.RouteGroups, 1), a.RouteGroups},
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
	if c.err == nil && a.RouteGroups > 0 && (a.Experts%a.RouteGroups != 0 || a.ExpertsPerToken > a.RouteTopGroups*(a.Experts/a.RouteGroups)) {
		c.fail(at("architecture", "route_groups"), "%d groups, of which %d serve a token, do not hold %d of %d experts", a.RouteGroups, a.RouteTopGroups, a.ExpertsPerToken, a.Experts)
	}
	for _, list := range []struct {
		name   string
		layers []int
	}{{"moe_layers", a.MoELayers}, {"window_layers", a.WindowLayers}} {
		for i, l := range list.layers {
			if l < 0 || l >= a.Layers || i > 0 && list.layers[i-1] >= l {
				c.fail(at("architecture", list.name, i), "layer %d: want ascending layers below %d", l, a.Layers)
			}
		}
	}
	a.validateLatent(c)
	if len(a.MoELayers) > 0 && a.ExpertsPerToken < 1 {
		c.fail(at("architecture", "experts_per_token"), "%d: want at least 1 where moe_layers are named", a.ExpertsPerToken)
	}
	for i, e := range a.EOS {
		if e < 0 || e > MaxDimension {
			c.fail(at("architecture", "eos_token_ids", i), "%d: want a token id", e)
		}
	}
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"attention_scale", a.AttentionScale}, {"swiglu_limit", a.SwiGLULimit}, {"swiglu_alpha", a.SwiGLUAlpha}, {"route_scale", a.RouteScale},
	} {
		if !validNumber(n.value, 0) {
			c.fail(at("architecture", n.name), "%v: want a finite number, not negative", n.value)
		}
	}
	r := &a.RoPE
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"theta", r.Theta}, {"factor", r.Factor}, {"low_freq_factor", r.LowFreqFactor}, {"high_freq_factor", r.HighFreqFactor},
		{"beta_fast", r.BetaFast}, {"beta_slow", r.BetaSlow},
	} {
		if !validNumber(n.value, 0) {
			c.fail(at("architecture", "rope", n.name), "%v: want a finite number, not negative", n.value)
		}
	}
}

func (a *Architecture) validateLatent(c *checker) {
	l := a.Latent
	if l == nil || c.err != nil {
		return
	}
	for _, d := range []struct {
		name       string
		value, low int
	}{{"q_rank", l.QRank, 0}, {"kv_rank", l.KVRank, 1}, {"nope_dim", l.NoPEDim, 1}, {"rope_dim", l.RoPEDim, 2}, {"value_dim", l.ValueDim, 1}} {
		if d.value < d.low || d.value > 1<<16 {
			c.fail(at("architecture", "latent", d.name), "%d: want %d to %d", d.value, d.low, 1<<16)
		}
	}
	if a.KVHeads != 1 || a.HeadDim != l.NoPEDim+l.RoPEDim {
		c.fail(at("architecture", "latent"), "%d kv_heads and heads of %d: want 1 and nope_dim + rope_dim", a.KVHeads, a.HeadDim)
	}
}
