package model

import (
	"math"
	"strconv"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// deepseekV2 is DeepSeek-V2 (DeepseekV2Config): latent attention, experts in
// groups beside shared ones, the first layers dense.
func deepseekV2() family {
	return family{name: "deepseek_v2", config: deepseekV2Config, names: func(a *doc.Architecture) naming { return deepseekNames{a} }}
}

func deepseekV2Config(c *config) doc.Architecture {
	l := &doc.Latent{
		QRank:    c.optional("q_lora_rank", 1536, 1, maxRank),
		KVRank:   c.integer("kv_lora_rank", 512, 1, maxRank),
		NoPEDim:  c.integer("qk_nope_head_dim", 128, 1, maxRank),
		RoPEDim:  c.integer("qk_rope_head_dim", 64, 2, maxRank),
		ValueDim: c.integer("v_head_dim", 128, 1, maxRank),
	}
	if n := c.integer("head_dim", l.RoPEDim, 1, maxHeads); n != l.RoPEDim {
		c.fail("head_dim", "%d: want qk_rope_head_dim, %d", n, l.RoPEDim)
	}
	if n := c.integer("qk_head_dim", l.NoPEDim+l.RoPEDim, 1, maxHeads); n != l.NoPEDim+l.RoPEDim {
		c.fail("qk_head_dim", "%d: want qk_nope_head_dim + qk_rope_head_dim, %d", n, l.NoPEDim+l.RoPEDim)
	}
	c.values["head_dim"] = jsonio.RawValue(strconv.Itoa(l.NoPEDim + l.RoPEDim))
	a := commonConfig(c)
	a.Latent, a.KVHeads = l, 1
	if n := c.integer("num_key_value_heads", a.Heads, 1, maxHeads); n != a.Heads {
		c.fail("num_key_value_heads", "%d: latent attention has as many as heads, %d", n, a.Heads)
	}
	a.ContextTokens = c.integer("max_position_embeddings", 2048, 1, doc.MaxContextTokens)
	a.IntermediateSize = c.integer("intermediate_size", 11008, 1, doc.MaxDimension)
	a.Experts = c.integer("n_routed_experts", 64, 1, doc.MaxExperts)
	a.ExpertsPerToken = c.integer("num_experts_per_tok", -1, 1, doc.MaxDimension)
	a.ExpertSize = c.integer("moe_intermediate_size", 1407, 1, doc.MaxDimension)
	a.SharedSize = c.integer("n_shared_experts", 2, 1, doc.MaxExperts) * a.ExpertSize
	a.RouteScale = c.positive("routed_scaling_factor", 1)
	c.groups(&a)
	dense := c.integer("first_k_dense_replace", 0, 0, doc.MaxLayers)
	for layer := dense; layer < a.Layers; layer++ {
		a.MoELayers = append(a.MoELayers, layer)
	}
	if dense == 0 {
		a.IntermediateSize = 0
	}
	c.only("attention_bias", "false")
	c.only("mlp_bias", "false")
	c.only("norm_topk_prob", "false")
	c.only("scoring_func", `"softmax"`)
	c.only("moe_layer_freq", "1")
	c.onlyFull(a.Layers)
	// Of training and of distributed inference.
	for _, key := range []string{"aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers"} {
		delete(c.values, key)
	}
	mscale := c.mscaleAllDim()
	ropeConfig(c, &a, 10000)
	if a.AttentionScale != 0 {
		c.fail("rope_scaling.mscale", "must equal mscale_all_dim: a scaled rotation is not supported in latent attention")
	}
	if a.RoPE.Type != "default" && mscale > 0 && a.RoPE.Factor > 1 {
		m := 0.1*mscale*math.Log(a.RoPE.Factor) + 1
		a.AttentionScale = m * m
	}
	return a
}

// groups reads how experts are limited to groups.
func (c *config) groups(a *doc.Architecture) {
	groups := c.integer("n_group", 1, 1, doc.MaxRouteGroups)
	top := c.integer("topk_group", 1, 1, groups)
	method := "greedy"
	switch c.take("topk_method", &method); method {
	case "greedy":
	case "group_limited_greedy":
		a.RouteGroups, a.RouteTopGroups = groups, top
	default:
		c.fail("topk_method", "%q is not supported, only greedy and group_limited_greedy", method)
	}
}

// mscaleAllDim looks at the number that scales attention with the context.
func (c *config) mscaleAllDim() float64 {
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		var rope struct {
			MScale float64 `json:"mscale_all_dim"`
		}
		if c.peek(key, &rope) {
			return rope.MScale
		}
	}
	return 0
}

// deepseekNames are the names of DeepSeek-V2. Its projections are cut into the
// matrices that latent attention multiplies with. kv_b_proj makes of a latent,
// for every head, the part of the key without a position and the value.
type deepseekNames struct{ arch *doc.Architecture }

func (n deepseekNames) source(op *doc.Op, role string) doc.Source {
	s := doc.Source{Name: huggingFaceName(op, role), Index: -1}
	if op.Kind != doc.KindAttention {
		return s
	}
	l, heads := n.arch.Latent, n.arch.Heads
	block := "model.layers." + strconv.Itoa(op.Layer) + ".self_attn."
	part := func(name string, rows, cols, period, first, count int) {
		s.Name = block + name + ".weight"
		s.Part = &doc.SourcePart{Rows: rows, Cols: cols, Period: period, First: first, Count: count}
	}
	query, from, head := "q_proj", n.arch.HiddenSize, l.NoPEDim+l.RoPEDim
	if l.QRank > 0 {
		query, from = "q_b_proj", l.QRank
	}
	switch role {
	case doc.RoleQA:
		s.Name = block + "q_a_proj.weight"
	case doc.RoleQANorm:
		s.Name = block + "q_a_layernorm.weight"
	case doc.RoleQNope:
		part(query, heads*head, from, head, 0, l.NoPEDim)
	case doc.RoleQRoPE:
		part(query, heads*head, from, head, l.NoPEDim, l.RoPEDim)
		s.Permute = permutePairs
	case doc.RoleLatent:
		part("kv_a_proj_with_mqa", l.KVRank+l.RoPEDim, n.arch.HiddenSize, l.KVRank+l.RoPEDim, 0, l.KVRank)
	case doc.RoleKRoPE:
		part("kv_a_proj_with_mqa", l.KVRank+l.RoPEDim, n.arch.HiddenSize, l.KVRank+l.RoPEDim, l.KVRank, l.RoPEDim)
		s.Permute = permutePairs
	case doc.RoleLatentNorm:
		s.Name = block + "kv_a_layernorm.weight"
	case doc.RoleKUp:
		part("kv_b_proj", heads*(l.NoPEDim+l.ValueDim), l.KVRank, l.NoPEDim+l.ValueDim, 0, l.NoPEDim)
		s.Part.Transposed = true
	case doc.RoleVUp:
		part("kv_b_proj", heads*(l.NoPEDim+l.ValueDim), l.KVRank, l.NoPEDim+l.ValueDim, l.NoPEDim, l.ValueDim)
	}
	return s
}
