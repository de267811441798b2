package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// checkpoints are the golden ones, made by transformers and by the package
// gguf; scripts/make_goldens.py and scripts/make_gguf_goldens.py.
var checkpoints = []string{
	"../../testdata/models/llama-gqa",
	"../../testdata/models/llama-rope-scaled",
	"../../testdata/models/qwen3moe",
	"../../testdata/models/qwen3moe-mixed",
	"../../testdata/models/mistral",
	"../../testdata/models/mistral-full",
	"../../testdata/models/qwen2",
	"../../testdata/models/qwen2-window",
	"../../testdata/models/qwen3",
	"../../testdata/models/qwen3-window",
	"testdata/llama.gguf",
	"testdata/llama-bias.gguf",
	"testdata/qwen3moe.gguf",
	"testdata/qwen2-00001-of-00003.gguf",
}

// inParts are checkpoints whose tensors are parts of those in the files, or
// unpacked: that they are the right ones shows in logits (pkg/calib).
var inParts = []string{
	"../../testdata/models/gpt-oss",
	"../../testdata/models/gpt-oss-bf16",
	"../../testdata/models/deepseek-v2",
	"../../testdata/models/deepseek-v2-lite",
	"testdata/mlx-qwen2",
	"testdata/mlx-qwen3moe",
}

func open(t testing.TB, path string) *Model {
	t.Helper()
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func eachTensor(p *doc.Profile, do func(op *doc.Op, t *doc.Tensor)) {
	for i := range p.Ops {
		for j := range p.Ops[i].Tensors {
			do(&p.Ops[i], &p.Ops[i].Tensors[j])
		}
	}
}

// TestValues compares every value of every checkpoint with what the Python
// packages read, by digest.
func TestValues(t *testing.T) {
	var want map[string]map[string]string
	text, err := os.ReadFile("testdata/values.json")
	if err == nil {
		err = jsonio.UnmarshalLoose("values.json", text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range checkpoints {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m, digests := open(t, path), want[filepath.Base(path)]
			eachTensor(m.Profile(), func(op *doc.Op, tensor *doc.Tensor) {
				name := huggingFaceName(op, tensor.Role)
				x := make([]float32, tensor.Rows*tensor.Cols)
				if err := m.ReadTensor(x, tensor); err != nil {
					t.Error(err)
					return
				}
				h := sha256.New()
				binary.Write(h, binary.LittleEndian, x)
				if got := hex.EncodeToString(h.Sum(nil)); got != digests[name] {
					t.Errorf("%s (%s): digest %s, want %s; begins %v", name, tensor.DType, got, digests[name], x[:4])
				}
				delete(digests, name)
			})
			for name := range digests {
				t.Errorf("%s is not in the profile", name)
			}
		})
	}
}

// TestReadRows compares parts of tensors with the whole.
func TestReadRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, path := range slices.Concat(checkpoints, inParts) {
		m := open(t, path)
		eachTensor(m.Profile(), func(op *doc.Op, tensor *doc.Tensor) {
			whole := make([]float32, tensor.Rows*tensor.Cols)
			if err := m.ReadTensor(whole, tensor); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				row0 := rng.IntN(tensor.Rows)
				rows := rng.IntN(tensor.Rows - row0 + 1)
				part := make([]float32, rows*tensor.Cols)
				if err := m.ReadRows(part, tensor, row0, rows); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(part, whole[row0*tensor.Cols:][:len(part)]) {
					t.Errorf("%s: %s %s: rows %d+%d differ from those of the whole", path, op.ID, tensor.Role, row0, rows)
				}
			}
		})
	}
}

func TestProfile(t *testing.T) {
	p := open(t, "../../testdata/models/qwen3moe-mixed").Profile()
	var ids []string
	for _, op := range p.Ops {
		ids = append(ids, op.ID)
	}
	want := "embedding block_0.attn block_0.mlp block_1.attn block_1.router block_1.moe block_1.expert_0 block_1.expert_1 block_1.expert_2 " +
		"block_1.expert_3 block_1.expert_4 block_2.attn block_2.mlp block_3.attn block_3.mlp final_norm lm_head"
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("ops\n%s\nwant\n%s", got, want)
	}
	head := p.Ops[len(p.Ops)-1]
	if head.Shares != doc.OpEmbedding || len(head.Tensors) != 0 || head.Parameters != 0 || head.FlopsPerToken != 2*352*64 {
		t.Errorf("tied lm_head is %+v", head)
	}
	expert := p.Ops[8]
	if expert.Layer != 1 || expert.Expert != 2 || expert.Parameters != 3*64*64 || expert.FlopsPerToken != 2*3*64*64 {
		t.Errorf("expert is %+v", expert)
	}
	// Norms and q_norm, k_norm of 4 layers, q and o of 4 heads of 64, k and v
	// of one; 3 dense layers of 128; router and 5 experts; embedding, final norm.
	parameters := int64(4*(2*64+2*64+2*64*256+2*64*64) + 3*3*64*128 + 5*64 + 5*3*64*64 + 352*64 + 64)
	if p.Parameters != parameters {
		t.Errorf("%d parameters, want %d", p.Parameters, parameters)
	}
	if want := []doc.KVCache{{Type: "f32", BytesPerTokenPerLayer: 2 * 64 * 4}, {Type: "f16", BytesPerTokenPerLayer: 2 * 64 * 2}}; !slices.Equal(p.KVCaches, want) {
		t.Errorf("kv caches %v, want %v", p.KVCaches, want)
	}
	if p.Reference != "source f16" || len(p.HeaderSHA256) != 64 || len(p.Tokenizer) != 64 || p.ModelID != "qwen3moe-mixed" {
		t.Errorf("reference %q, header %q, tokenizer %q, id %q", p.Reference, p.HeaderSHA256, p.Tokenizer, p.ModelID)
	}
	eachTensor(p, func(op *doc.Op, tensor *doc.Tensor) {
		keep := tensor.Rows == 1 || op.Kind == doc.KindMoERouter
		if tensor.Keep != keep {
			t.Errorf("%s %s: keep is %v", op.ID, tensor.Role, tensor.Keep)
		}
	})
}

func TestArchitecture(t *testing.T) {
	for _, test := range []struct {
		path string
		want doc.Architecture
	}{
		{"../../testdata/models/llama-rope-scaled", doc.Architecture{
			HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 1, HeadDim: 32, IntermediateSize: 128, VocabSize: 352, ContextTokens: 1024,
			NormEps: 1e-3, AttentionBias: true, AttentionOBias: true, EOS: []int{0},
			RoPE: doc.RoPE{Theta: 500000, Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 128},
		}},
		{"testdata/llama-bias.gguf", doc.Architecture{
			HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 1, HeadDim: 32, IntermediateSize: 128, VocabSize: 352, ContextTokens: 1024,
			NormEps: 1e-3, AttentionBias: true, AttentionOBias: true, EOS: []int{0},
			RoPE: doc.RoPE{Theta: 500000, Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192},
		}},
		{"../../testdata/models/qwen3moe-mixed", doc.Architecture{
			HiddenSize: 64, Layers: 4, Heads: 4, KVHeads: 1, HeadDim: 64, IntermediateSize: 128, VocabSize: 352, ContextTokens: 1024,
			NormEps: 1e-3, TiedEmbedding: true, QKNorm: true, EOS: []int{0}, RoPE: doc.RoPE{Theta: 10000, Type: "default"},
			Experts: 5, ExpertsPerToken: 3, ExpertSize: 64, MoELayers: []int{1},
		}},
	} {
		got := open(t, test.path).Profile().Architecture
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(doc.Architecture{}, "Extra")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.path, diff)
		}
	}
}

// TestGGUFArchitecture compares what a GGUF file and the folder that it was
// made from say.
func TestGGUFArchitecture(t *testing.T) {
	for _, pair := range [][2]string{
		{"../../testdata/models/llama-gqa", "testdata/llama.gguf"},
		{"../../testdata/models/qwen3moe", "testdata/qwen3moe.gguf"},
		{"../../testdata/models/qwen2", "testdata/qwen2-00001-of-00003.gguf"},
	} {
		want, got := open(t, pair[0]).Profile(), open(t, pair[1]).Profile()
		if diff := cmp.Diff(want, got,
			cmpopts.IgnoreFields(doc.Architecture{}, "Extra"),
			cmpopts.IgnoreFields(doc.Profile{}, "ModelID", "HeaderSHA256", "Tokenizer", "Reference"),
			cmpopts.IgnoreFields(doc.Tensor{}, "Source", "DType"),
		); diff != "" {
			t.Errorf("%s (-folder +gguf):\n%s", pair[1], diff)
		}
	}
	for path, want := range map[string]string{"testdata/llama.gguf": "dequantized Q4_1", "testdata/qwen3moe.gguf": "dequantized Q4_0", "testdata/qwen2-00001-of-00003.gguf": "source bf16"} {
		if got := open(t, path).Profile().Reference; got != want {
			t.Errorf("%s: reference %q, want %q", path, got, want)
		}
	}
}

// TestProfileFromConfig compares the profile without weights with the one of
// the whole checkpoint.
func TestProfileFromConfig(t *testing.T) {
	for _, path := range slices.Concat(checkpoints[:10], inParts[1:4]) {
		want := *open(t, path).Profile()
		want.HeaderSHA256, want.Tokenizer = "", ""
		for _, path := range []string{path, filepath.Join(path, "config.json")} {
			got, err := ProfileFromConfig(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("%s (-weights +config):\n%s", path, diff)
			}
		}
	}
}

// TestMLXValues compares what MLX dequantizes (scripts/make_mlx_checkpoints.py).
func TestMLXValues(t *testing.T) {
	for _, folder := range []string{"testdata/mlx-qwen2", "testdata/mlx-qwen3moe"} {
		m := open(t, folder)
		var want map[string]string
		if err := jsonio.UnmarshalLoose(folder, read(t, filepath.Join(folder, "values.json")), &want); err != nil {
			t.Fatal(err)
		}
		eachTensor(m.Profile(), func(op *doc.Op, tensor *doc.Tensor) {
			name := tensor.Source.Name
			if tensor.Source.Index >= 0 {
				name += fmt.Sprintf("[%d]", tensor.Source.Index)
			}
			x := make([]float32, tensor.Rows*tensor.Cols)
			if err := m.ReadTensor(x, tensor); err != nil {
				t.Error(err)
				return
			}
			h := sha256.New()
			binary.Write(h, binary.LittleEndian, x)
			if got := hex.EncodeToString(h.Sum(nil)); got != want[name] {
				t.Errorf("%s: %s (%s): digest %s, want %s; begins %v", folder, name, tensor.DType, got, want[name], x[:4])
			}
			delete(want, name)
		})
		for name := range want {
			t.Errorf("%s is not in the profile", name)
		}
		if got := m.Profile().Reference; !strings.HasPrefix(got, "dequantized MLX ") {
			t.Errorf("%s: reference %q", folder, got)
		}
	}
}
