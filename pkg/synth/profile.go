// Package synth makes profiles, tables, checkpoints and stores out of
// nothing: for tests, for planning models that one does not have, and for
// benchmarks. What it makes says "synthetic": no quality is claimed for it.
package synth

import (
	"cmp"
	"fmt"

	"substrate/pkg/doc"
	"substrate/pkg/model"
)

// Shape is a model to make up. Zero numbers stand for the default.
type Shape struct {
	ModelID    string
	Layers     int // 27
	Hidden     int // 2048
	Heads      int // 16
	KVHeads    int // as Heads
	HeadDim    int // hidden / heads
	Vocab      int // 32000
	Context    int // 32768, the model's limit in tokens
	Experts    int // per layer; 0: a dense model
	TopK       int // experts of a token; 8, or all
	ExpertSize int // width of one expert; 1408
	// Shared is the number of shared experts per layer, which every token
	// passes through; together they are one op of their summed width.
	Shared       int
	Intermediate int // width of a dense layer; 4 * hidden
	Tied         bool
	Weights      string // type of the pretended source; "bf16"
}

// Defaults of a shape, those of the original's example: a mixture of experts
// of 27 layers.
const (
	defaultLayers     = 27
	defaultHidden     = 2048
	defaultHeads      = 16
	defaultVocab      = 32000
	defaultContext    = 32768
	defaultTopK       = 8
	defaultExpertSize = 1408
)

func (s Shape) withDefaults() Shape {
	s.Layers = cmp.Or(s.Layers, defaultLayers)
	s.Hidden = cmp.Or(s.Hidden, defaultHidden)
	s.Heads = cmp.Or(s.Heads, defaultHeads)
	s.KVHeads = cmp.Or(s.KVHeads, s.Heads)
	if s.Heads > 0 {
		s.HeadDim = cmp.Or(s.HeadDim, s.Hidden/s.Heads)
	}
	s.Vocab = cmp.Or(s.Vocab, defaultVocab)
	s.Context = cmp.Or(s.Context, defaultContext)
	s.Intermediate = cmp.Or(s.Intermediate, 4*s.Hidden)
	s.Weights = cmp.Or(s.Weights, "bf16")
	if s.Experts > 0 {
		s.TopK = cmp.Or(s.TopK, min(defaultTopK, s.Experts))
		s.ExpertSize = cmp.Or(s.ExpertSize, defaultExpertSize)
	}
	if s.ModelID == "" {
		s.ModelID = fmt.Sprintf("synthetic-%dx%d", s.Layers, s.Hidden)
		if s.Experts > 0 {
			s.ModelID = fmt.Sprintf("synthetic-moe-%dx%d", s.Layers, s.Experts)
		}
	}
	return s
}

// Profile makes the profile of a shape.
func Profile(s Shape) (*doc.Profile, error) {
	s = s.withDefaults()
	family := "llama"
	a := doc.Architecture{
		HiddenSize:       s.Hidden,
		Layers:           s.Layers,
		Heads:            s.Heads,
		KVHeads:          s.KVHeads,
		HeadDim:          s.HeadDim,
		IntermediateSize: s.Intermediate,
		VocabSize:        s.Vocab,
		ContextTokens:    s.Context,
		NormEps:          1e-6,
		TiedEmbedding:    s.Tied,
		RoPE:             doc.RoPE{Theta: 1e6, Type: "default"},
		BOS:              -1,
		EOS:              []int{},
	}
	if s.Experts > 0 {
		family = "qwen3_moe"
		a.QKNorm = true
		a.NormTopK = true
		a.Experts, a.ExpertsPerToken, a.ExpertSize = s.Experts, s.TopK, s.ExpertSize
		a.SharedSize = s.Shared * s.ExpertSize
		a.IntermediateSize = 0
		for l := range s.Layers {
			a.MoELayers = append(a.MoELayers, l)
		}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	p, err := model.NewProfile(s.ModelID, family, a, s.Weights)
	if err != nil {
		return nil, err
	}
	p.Synthetic = true
	return p, p.Validate()
}

// check refuses shapes that no document could hold, before work is done for
// them.
func (s Shape) check() error {
	for _, n := range []struct {
		flag          string
		value, lo, hi int
	}{
		{"layers", s.Layers, 1, doc.MaxLayers}, {"hidden", s.Hidden, 1, 1 << 20}, {"heads", s.Heads, 1, 1 << 10},
		{"kv-heads", s.KVHeads, 1, s.Heads}, {"head-dim", s.HeadDim, 1, 1 << 12}, {"vocab", s.Vocab, 1, 1 << 22},
		{"context", s.Context, 1, doc.MaxContextTokens}, {"experts", s.Experts, 0, 4096}, {"top-k", s.TopK, 0, s.Experts},
		{"expert-size", s.ExpertSize, 0, 1 << 20}, {"shared", s.Shared, 0, 64}, {"intermediate", s.Intermediate, 1, 1 << 20},
	} {
		if n.value < n.lo || n.value > n.hi {
			return &ShapeError{n.flag, fmt.Sprintf("%d: want %d to %d", n.value, n.lo, n.hi)}
		}
	}
	switch {
	case s.Heads%s.KVHeads != 0:
		return &ShapeError{"kv-heads", fmt.Sprintf("%d heads are not a multiple of %d", s.Heads, s.KVHeads)}
	case s.HeadDim%2 != 0:
		return &ShapeError{"head-dim", fmt.Sprintf("%d is odd, rotary embedding pairs dimensions", s.HeadDim)}
	}
	if s.Shared > 0 && s.Experts == 0 {
		return &ShapeError{"shared", "a shared expert belongs to a model with experts"}
	}
	if s.Layers*max(1, s.Experts) > 1<<17 {
		return &ShapeError{"experts", fmt.Sprintf("%d layers of %d experts are more than any model has", s.Layers, s.Experts)}
	}
	return nil
}

// ShapeError says which number of a shape is wrong.
type ShapeError struct {
	Flag   string
	Reason string
}

func (e *ShapeError) Error() string { return "--" + e.Flag + ": " + e.Reason }

// ExitCode is that of a usage error.
func (e *ShapeError) ExitCode() int { return 2 }
