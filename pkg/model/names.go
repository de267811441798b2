package model

import (
	"fmt"
	"strconv"
	"strings"

	"substrate/pkg/doc"
)

// naming says where a kind of checkpoint keeps the tensor of a role.
type naming interface {
	source(op *doc.Op, role string) doc.Source
}

// huggingFaceNames are the names of transformers' modules, one tensor for
// every matrix.
type huggingFaceNames struct{}

func (huggingFaceNames) source(op *doc.Op, role string) doc.Source {
	return doc.Source{Name: huggingFaceName(op, role), Index: -1}
}

// mlxNames are the names that MLX's converter gives experts: stacked in one
// tensor, under switch_mlp.
type mlxNames struct{ naming }

// MLXSource is where mlx-lm keeps the tensor of a role in the families whose
// tensors transformers has one by one. Its index is the expert in a tensor of
// all, or -1.
func MLXSource(op *doc.Op, role string) doc.Source {
	return mlxNames{huggingFaceNames{}}.source(op, role)
}

const switchMLP = ".mlp.switch_mlp."

func (n mlxNames) source(op *doc.Op, role string) doc.Source {
	if op.Kind == doc.KindMoEExpert {
		return doc.Source{Name: "model.layers." + strconv.Itoa(op.Layer) + switchMLP + role + "_proj.weight", Index: op.Expert}
	}
	return n.naming.source(op, role)
}

// mlxStacked reports whether a checkpoint has such experts.
func mlxStacked(t table) bool {
	for name := range t {
		if strings.Contains(name, switchMLP) {
			return true
		}
	}
	return false
}

func huggingFaceName(op *doc.Op, role string) string {
	switch op.Kind {
	case doc.KindEmbedding:
		return "model.embed_tokens.weight"
	case doc.KindNorm:
		return "model.norm.weight"
	case doc.KindLMHead:
		return "lm_head.weight"
	}
	block := "model.layers." + strconv.Itoa(op.Layer) + "."
	if role == doc.RoleNorm {
		if op.Kind == doc.KindAttention {
			return block + "input_layernorm.weight"
		}
		return block + "post_attention_layernorm.weight"
	}
	switch op.Kind {
	case doc.KindAttention:
		return block + "self_attn." + huggingFaceAttention(role)
	case doc.KindMoERouter:
		return block + "mlp.gate.weight"
	case doc.KindMoEExpert:
		return fmt.Sprintf("%smlp.experts.%d.%s_proj.weight", block, op.Expert, role)
	case doc.KindMoEShared:
		return block + "mlp.shared_experts." + role + "_proj.weight"
	}
	return block + "mlp." + role + "_proj.weight"
}

func huggingFaceAttention(role string) string {
	switch role {
	case doc.RoleQBias, doc.RoleKBias, doc.RoleVBias, doc.RoleOBias:
		return role[:1] + "_proj.bias"
	case doc.RoleQNorm, doc.RoleKNorm:
		return role + ".weight"
	}
	return role + "_proj.weight"
}

// Orders of rows: of q and k in GGUF files of family llama, and of rotated
// parts of heads.
const (
	permuteLlamaQK = "llama_qk"
	permutePairs   = "rope_pairs"
)

// ggufNames are the names of llama.cpp: experts stacked in one tensor, and in
// family llama the rows of q and k in the order of its rotary embedding.
type ggufNames struct{ permuted bool }

func (n ggufNames) source(op *doc.Op, role string) doc.Source {
	s := doc.Source{Name: ggufName(op, role), Index: -1}
	if op.Kind == doc.KindMoEExpert {
		s.Index = op.Expert
	}
	if n.permuted {
		switch role {
		case doc.RoleQ, doc.RoleK, doc.RoleQBias, doc.RoleKBias:
			s.Permute = permuteLlamaQK
		}
	}
	return s
}

func ggufName(op *doc.Op, role string) string {
	switch op.Kind {
	case doc.KindEmbedding:
		return "token_embd.weight"
	case doc.KindNorm:
		return "output_norm.weight"
	case doc.KindLMHead:
		return "output.weight"
	}
	block := "blk." + strconv.Itoa(op.Layer) + "."
	switch op.Kind {
	case doc.KindAttention:
		return block + ggufAttention(role)
	case doc.KindMoEExpert:
		return block + "ffn_" + role + "_exps.weight"
	}
	switch role {
	case doc.RoleNorm:
		return block + "ffn_norm.weight"
	case doc.RoleWeight:
		return block + "ffn_gate_inp.weight"
	}
	return block + "ffn_" + role + ".weight"
}

func ggufAttention(role string) string {
	switch role {
	case doc.RoleNorm:
		return "attn_norm.weight"
	case doc.RoleO:
		return "attn_output.weight"
	case doc.RoleOBias:
		return "attn_output.bias"
	case doc.RoleQBias, doc.RoleKBias, doc.RoleVBias:
		return "attn_" + role[:1] + ".bias"
	}
	return "attn_" + role + ".weight"
}
