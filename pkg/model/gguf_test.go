package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// ggufKey is a metadata value of a test file; raw is its type and bytes.
type ggufKey struct {
	key string
	raw []byte
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func typed(kind uint32, value []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, kind), value...)
}

func ggufText(key, s string) ggufKey { return ggufKey{key, typed(ggufString, appendText(nil, s))} }

func ggufNumber(key string, n uint32) ggufKey {
	return ggufKey{key, typed(ggufUint32, binary.LittleEndian.AppendUint32(nil, n))}
}

func ggufReal(key string, x float32) ggufKey {
	return ggufKey{key, typed(ggufFloat32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))}
}

func ggufList(key string, kind uint32, count uint64, elements []byte) ggufKey {
	value := binary.LittleEndian.AppendUint32(nil, kind)
	value = binary.LittleEndian.AppendUint64(value, count)
	return ggufKey{key, typed(ggufArray, append(value, elements...))}
}

func ggufTexts(key string, texts ...string) ggufKey {
	var elements []byte
	for _, s := range texts {
		elements = appendText(elements, s)
	}
	return ggufList(key, ggufString, uint64(len(texts)), elements)
}

// ggufTensor is a tensor of a test file, all zeros.
type ggufTensor struct {
	name  string
	shape []uint64 // outermost first
	kind  uint32
}

// ggufFile is a test file before it is written.
type ggufFile struct {
	version uint32
	keys    []ggufKey
	tensors []ggufTensor
	// edits of the finished description, for files that lie
	offset func(tensor string, offset uint64) uint64
}

func (g ggufFile) bytes() []byte {
	b := append([]byte("GGUF"), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[4:], g.version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(g.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(g.keys)))
	for _, k := range g.keys {
		b = append(appendText(b, k.key), k.raw...)
	}
	var offset uint64
	for _, t := range g.tensors {
		b = binary.LittleEndian.AppendUint32(appendText(b, t.name), uint32(len(t.shape)))
		n := uint64(1)
		for _, d := range slices.Backward(t.shape) {
			b = binary.LittleEndian.AppendUint64(b, d)
			n *= d
		}
		at := offset
		if g.offset != nil {
			at = g.offset(t.name, offset)
		}
		b = binary.LittleEndian.AppendUint32(b, t.kind)
		b = binary.LittleEndian.AppendUint64(b, at)
		d, _ := ggufType(t.kind)
		offset += (uint64(d.bytes(int64(n))) + 31) &^ 31
	}
	b = append(b, make([]byte, -len(b)&31)...)
	return append(b, make([]byte, offset)...)
}

// tinyLlama is the smallest model: one layer, one head.
func tinyLlama() ggufFile {
	return ggufFile{
		version: 3,
		keys: []ggufKey{
			ggufText("general.architecture", "llama"),
			ggufNumber("llama.context_length", 16), ggufNumber("llama.embedding_length", 32),
			ggufNumber("llama.block_count", 1), ggufNumber("llama.feed_forward_length", 64),
			ggufNumber("llama.attention.head_count", 1), ggufReal("llama.attention.layer_norm_rms_epsilon", 1e-5),
			ggufText("tokenizer.ggml.model", "gpt2"), ggufTexts("tokenizer.ggml.tokens", "a", "", "bc"),
			ggufTexts("tokenizer.ggml.merges", "b c"), ggufNumber("tokenizer.ggml.eos_token_id", 1),
			ggufNumber("tokenizer.ggml.eot_token_id", 2), ggufNumber("tokenizer.ggml.padding_token_id", math.MaxUint32),
		},
		tensors: []ggufTensor{
			{"token_embd.weight", []uint64{3, 32}, 8}, {"output_norm.weight", []uint64{32}, 0},
			{"blk.0.attn_norm.weight", []uint64{32}, 0}, {"blk.0.ffn_norm.weight", []uint64{32}, 0},
			{"blk.0.attn_q.weight", []uint64{32, 32}, 2}, {"blk.0.attn_k.weight", []uint64{32, 32}, 2},
			{"blk.0.attn_v.weight", []uint64{32, 32}, 2}, {"blk.0.attn_output.weight", []uint64{32, 32}, 3},
			{"blk.0.ffn_gate.weight", []uint64{64, 32}, 2}, {"blk.0.ffn_up.weight", []uint64{64, 32}, 2},
			{"blk.0.ffn_down.weight", []uint64{32, 64}, 1},
		},
	}
}

func describe(b []byte) (*Model, error) {
	m := &Model{path: "w.gguf"}
	m.buffers.New = func() any {
		b := make([]byte, chunkBytes)
		return &b
	}
	f := &file{r: bytes.NewReader(b), name: "w.gguf", size: int64(len(b))}
	m.files = []*file{f}
	h, err := readGGUF(f)
	if err != nil {
		return m, err
	}
	return m, m.describeGGUF(f, h)
}

// TestGGUFSplit takes away and exchanges files of a model that is split.
func TestGGUFSplit(t *testing.T) {
	const first, second, third = "qwen2-00001-of-00003.gguf", "qwen2-00002-of-00003.gguf", "qwen2-00003-of-00003.gguf"
	if id := open(t, "testdata/"+first).Profile().ModelID; id != "qwen2" {
		t.Errorf("model id %q", id)
	}
	for _, test := range []struct {
		open, want string
		files      map[string]string // name: what it is a copy of
	}{
		{second, second + ": split.no: file 2 of 3: give the first one, " + first, map[string]string{second: second}},
		{first, "no such file", map[string]string{first: first, second: second}},
		{first, third + ": split.no: file 2 of 3 where 3 of 3 belongs", map[string]string{first: first, second: second, third: second}},
		{"m.gguf", "split.no: file 1 of 3, whose name should end with -00001-of-00003.gguf", map[string]string{"m.gguf": first}},
	} {
		dir := t.TempDir()
		for name, source := range test.files {
			write(t, read(t, filepath.Join("testdata", source)), filepath.Join(dir, name))
		}
		_, err := Open(filepath.Join(dir, test.open))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v\nwant %s", err, test.want)
		}
	}
}

func TestGGUFRead(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		g := tinyLlama()
		g.version = version
		g.keys = append(g.keys, ggufKey{"general.tags", typed(ggufArray, append(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, ggufArray), 1),
			binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, ggufUint8), 0)...))}) // an array of one empty array
		m, err := describe(g.bytes())
		if err != nil {
			t.Fatal(err)
		}
		a := m.Profile().Architecture
		if a.NormEps != 1e-5 || !a.TiedEmbedding || a.VocabSize != 3 || !slices.Equal(a.EOS, []int{1, 2}) || a.BOS != -1 {
			t.Errorf("version %d: %+v", version, a)
		}
		if got := m.Profile().Reference; got != "dequantized Q4_0" {
			t.Errorf("reference %q", got)
		}
	}
}

func TestGGUFVocabulary(t *testing.T) {
	m := open(t, "testdata/llama.gguf")
	source, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	v := source.Vocabulary
	if v.Model != "gpt2" || v.Pre != "gpt-2" || len(v.Tokens) != 320 || len(v.TokenTypes) != 320 || v.BOS != 0 || v.EOS != 0 || v.PAD != -1 || v.UNK != -1 || v.AddBOS {
		t.Errorf("%+v", v)
	}
	var hub struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int `json:"vocab"`
			Merges [][]string     `json:"merges"`
		} `json:"model"`
	}
	if err := jsonio.UnmarshalLoose(tokenizerFile, read(t, testConfigs, "llama-gqa", tokenizerFile), &hub); err != nil {
		t.Fatal(err)
	}
	for token, id := range hub.Model.Vocab {
		if v.Tokens[id] != token {
			t.Errorf("token %d is %q, want %q", id, v.Tokens[id], token)
		}
	}
	for _, added := range hub.Added {
		if v.Tokens[added.ID] != added.Content || v.TokenTypes[added.ID] != 3 {
			t.Errorf("token %d is %q of type %d, want %q of type 3", added.ID, v.Tokens[added.ID], v.TokenTypes[added.ID], added.Content)
		}
	}
	if v.TokenTypes[319] != 1 || len(v.Merges) != len(hub.Model.Merges) {
		t.Errorf("token 319 of type %d, %d merges, want %d", v.TokenTypes[319], len(v.Merges), len(hub.Model.Merges))
	}
	for i, merge := range hub.Model.Merges {
		if v.Merges[i] != strings.Join(merge, " ") {
			t.Errorf("merge %d is %q, want %q", i, v.Merges[i], merge)
		}
	}
	template, err := m.ChatTemplate()
	if template != "{{ messages }}" || v.ChatTemplate != template || err != nil {
		t.Errorf("chat template %q, error %v", template, err)
	}
	m, err = describe(tinyLlama().bytes())
	if err == nil {
		source, err = m.Tokenizer()
	}
	if err != nil || !slices.Equal(source.Vocabulary.Tokens, []string{"a", "", "bc"}) || source.Vocabulary.PAD != -1 {
		t.Errorf("%+v, error %v", source, err)
	}
}

// set replaces or adds a key, remove takes one away.
func (g *ggufFile) set(k ggufKey) {
	g.remove(k.key)
	g.keys = append(g.keys, k)
}

func (g *ggufFile) remove(key string) {
	g.keys = slices.DeleteFunc(g.keys, func(k ggufKey) bool { return k.key == key })
}

func (g *ggufFile) tensor(name string) *ggufTensor {
	return &g.tensors[slices.IndexFunc(g.tensors, func(t ggufTensor) bool { return t.name == name })]
}

func TestGGUFRefused(t *testing.T) {
	for _, test := range []struct {
		edit    func(g *ggufFile)
		damaged bool
		want    string
	}{
		{func(g *ggufFile) { g.version = 1 }, false, "offset 4: GGUF version 1 is not supported"},
		{func(g *ggufFile) { g.version = 3 << 24 }, false, "offset 4: GGUF version 50331648 is not supported"},
		{func(g *ggufFile) { g.set(ggufText("general.architecture", "gemma")) }, false, `general.architecture: "gemma" is not supported`},
		{func(g *ggufFile) { g.remove("general.architecture") }, false, `general.architecture: "" is not supported`},
		{func(g *ggufFile) { g.set(ggufText("general.type", "adapter")) }, false, `general.type: "adapter" is not supported`},
		{func(g *ggufFile) { g.remove("llama.block_count") }, false, "llama.block_count: missing"},
		{func(g *ggufFile) { g.set(ggufNumber("llama.block_count", 1<<15)) }, false, "llama.block_count: 32768 layers"},
		{func(g *ggufFile) { g.set(ggufNumber("llama.attention.head_count", 0)) }, false, "llama.attention.head_count: 0: want a number from 1"},
		{func(g *ggufFile) { g.set(ggufList("llama.attention.head_count", ggufUint32, 1, []byte{1, 0, 0, 0})) }, false, "llama.attention.head_count: an array of 1: want a number"},
		{func(g *ggufFile) { g.set(ggufReal("llama.attention.layer_norm_rms_epsilon", -1)) }, false, "llama.attention.layer_norm_rms_epsilon: -1: want a number above 0"},
		{func(g *ggufFile) { g.set(ggufReal("llama.logit_scale", 0.5)) }, false, "llama.logit_scale: unknown key with value 0.5 might change the maths"},
		{func(g *ggufFile) { g.set(ggufNumber("llama.expert_count", 8)) }, false, "llama.expert_count: 8: llama with experts (Mixtral) is not supported"},
		{func(g *ggufFile) { g.set(ggufNumber("llama.rope.dimension_count", 16)) }, false, "llama.rope.dimension_count: 16 of 32 dimensions"},
		{func(g *ggufFile) { g.set(ggufNumber("llama.attention.value_length", 16)) }, false, "llama.attention.value_length: 16 differs"},
		{func(g *ggufFile) { g.set(ggufText("llama.rope.scaling.type", "yarn")) }, false, `llama.rope.scaling.type: "yarn" is not supported`},
		{func(g *ggufFile) { g.tensors = append(g.tensors, ggufTensor{ropeFreqs, []uint64{16}, 0}) }, false, "factor 0 is 0, llama3 scaling by 1 has 1"},
		{func(g *ggufFile) { g.set(ggufNumber("general.alignment", 24)) }, false, "general.alignment: want a power of two"},
		{func(g *ggufFile) { g.keys = append(g.keys, g.keys[0]) }, false, `metadata key "general.architecture" occurs twice`},
		{func(g *ggufFile) { g.set(ggufKey{"x", typed(99, nil)}) }, false, "metadata type 99 is unknown"},
		{func(g *ggufFile) { g.set(ggufList("x", 99, 1, nil)) }, false, "metadata array of unknown type 99"},
		{func(g *ggufFile) { g.set(ggufList("x", ggufUint64, 1<<61, nil)) }, true, "2305843009213693952 array elements announced"},
		{func(g *ggufFile) { g.set(ggufList("x", ggufString, 1<<40, nil)) }, false, "1099511627776 array elements: at most 16777216 are allowed"},
		{func(g *ggufFile) { g.set(ggufList("x", ggufString, 1, binary.LittleEndian.AppendUint64(nil, 1<<40))) }, true, "1099511627776 bytes of a string announced"},
		{func(g *ggufFile) {
			g.set(ggufKey{"x", typed(ggufString, binary.LittleEndian.AppendUint64(nil, 1<<62))})
		}, false, "4611686018427387904 bytes of a metadata string: at most"},
		{func(g *ggufFile) {
			raw := typed(ggufArray, nil)
			for range 9 {
				raw = append(raw, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, ggufArray), 1)...)
			}
			g.set(ggufKey{"x", raw})
		}, false, "metadata arrays nest deeper than 4"},
		{func(g *ggufFile) { g.set(ggufList("tokenizer.ggml.tokens", ggufUint8, 1, []byte{1})) }, false, "tokenizer.ggml.tokens: an array of 1 of type 0 is not the array that belongs here"},
		{func(g *ggufFile) { g.set(ggufList("tokenizer.ggml.token_type", ggufInt32, 1, []byte{1, 0, 0, 0})) }, false, "tokenizer.ggml.token_type: 1 types for 3 tokens"},
		{func(g *ggufFile) { g.tensor("token_embd.weight").kind = 16 }, false, "token_embd.weight has type IQ2_XXS, which is not supported"},
		{func(g *ggufFile) { g.tensor("token_embd.weight").kind = 77 }, false, "token_embd.weight has type ggml type 77, which is not supported"},
		{func(g *ggufFile) { g.tensor("token_embd.weight").name = "output_norm.weight" }, false, "tensor output_norm.weight occurs twice"},
		{func(g *ggufFile) { g.tensor("token_embd.weight").shape = []uint64{3, 33} }, false, "tensor token_embd.weight: shape [3, 33] of Q8_0 is impossible"},
		{func(g *ggufFile) { g.tensor("output_norm.weight").shape = []uint64{1, 1, 1, 1, 32} }, false, "tensor output_norm.weight has 5 dimensions"},
		{func(g *ggufFile) { g.tensor("output_norm.weight").shape = []uint64{16} }, false, "output_norm.weight has shape [16], want [32]"},
		{func(g *ggufFile) { g.tensor("output_norm.weight").name = "output_nrm.weight" }, false, "missing output_norm.weight [32]; unexpected output_nrm.weight [32]"},
		{func(g *ggufFile) {
			g.offset = func(name string, at uint64) uint64 {
				if name == "output_norm.weight" {
					return at + 8
				}
				return at
			}
		}, false, "tensor output_norm.weight: offset 136 is not a multiple of the alignment 32"},
		{func(g *ggufFile) {
			g.offset = func(name string, at uint64) uint64 {
				if name == "output_norm.weight" {
					return 0
				}
				return at
			}
		}, false, "tensor "},
		{func(g *ggufFile) {
			g.offset = func(name string, at uint64) uint64 {
				if name == "output_norm.weight" {
					return 1 << 60
				}
				return at
			}
		}, true, "tensor output_norm.weight: its 128 bytes at 1152921504606846976 of the data are not in the file"},
	} {
		g := tinyLlama()
		test.edit(&g)
		_, err := describe(g.bytes())
		if err == nil || !strings.HasPrefix(err.Error(), "w.gguf: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v\nwant %s", err, test.want)
		}
		if e := (*Error)(nil); errors.As(err, &e) && e.Damaged != test.damaged {
			t.Errorf("%v: exit code %d", err, e.ExitCode())
		}
	}
}

// TestGGUFCutOff cuts a file at every byte of its header and some of its data.
func TestGGUFCutOff(t *testing.T) {
	whole := tinyLlama().bytes()
	for n := 0; n < len(whole); n += 1 + n/2048*97 {
		m, err := describe(whole[:n])
		if err == nil {
			t.Fatalf("%d of %d bytes were enough for %v", n, len(whole), m.Profile())
		}
	}
	absurd := []byte("GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f")
	if _, err := describe(absurd); err == nil || !strings.Contains(err.Error(), "offset 16: 9223372036854775807 tensors: at most 1048576 are allowed") {
		t.Errorf("absurd counts: %v", err)
	}
}

func TestGGUFRope(t *testing.T) {
	g := tinyLlama()
	g.set(ggufText("llama.rope.scaling.type", "linear"))
	g.set(ggufReal("llama.rope.scaling.factor", 4))
	g.set(ggufReal("llama.rope.freq_base", 5e5))
	m, err := describe(g.bytes())
	if want := (doc.RoPE{Theta: 5e5, Type: "linear", Factor: 4}); err != nil || m.Profile().Architecture.RoPE != want {
		t.Errorf("error %v, want %v", err, want)
	}
	// The factors of llama3 scaling give its parameters, others do not.
	want := doc.RoPE{Theta: 5e5, Type: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192}
	factors := make([]float32, 64)
	for i := range factors {
		factors[i] = float32(llama3Factor(&want, i, 128))
	}
	if got, err := llama3RoPE(5e5, factors); err != nil || got != want {
		t.Errorf("got %v, error %v, want %v", got, err, want)
	}
	factors[40] *= 1.01
	if _, err := llama3RoPE(5e5, factors); err == nil {
		t.Error("other factors were taken for llama3")
	}
}

func FuzzGGUF(f *testing.F) {
	f.Add(tinyLlama().bytes())
	g := tinyLlama()
	g.set(ggufList("tokenizer.ggml.token_type", ggufInt32, 3, make([]byte, 12)))
	g.set(ggufText("llama.rope.scaling.type", "linear"))
	g.tensors = g.tensors[:3]
	f.Add(g.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := describe(b)
		if err != nil {
			return
		}
		m.Tokenizer()
		eachTensor(m.Profile(), func(op *doc.Op, tensor *doc.Tensor) {
			if n := tensor.Rows * tensor.Cols; n <= 1<<16 {
				err := m.ReadTensor(make([]float32, n), tensor)
				if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
					t.Fatal(err)
				}
			}
		})
	})
}

func TestChatTemplate(t *testing.T) {
	for _, test := range []struct{ config, file, want string }{
		{"", "", ""},
		{`{}`, "", ""},
		{`{"chat_template": null}`, "", ""},
		{`{"chat_template": "one"}`, "", "one"},
		{`{"chat_template": "one"}`, "two", "two"},
		{`{"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "three"}]}`, "", "three"},
	} {
		dir := copyModel(t, "llama-gqa")
		if test.config != "" {
			write(t, []byte(test.config), dir, tokenizerConfigFile)
		}
		if test.file != "" {
			write(t, []byte(test.file), dir, chatTemplateFile)
		}
		if got, err := open(t, dir).ChatTemplate(); got != test.want || err != nil {
			t.Errorf("%+v: got %q, error %v", test, got, err)
		}
	}
}

func TestTokenizerJSON(t *testing.T) {
	dir := copyModel(t, "llama-gqa")
	write(t, []byte("{}"), dir, tokenizerConfigFile)
	m := open(t, dir)
	source, err := m.Tokenizer()
	if err != nil || !bytes.Equal(source.JSON, read(t, dir, tokenizerFile)) || string(source.Config) != "{}" || source.Vocabulary != nil {
		t.Errorf("%+v, error %v", source, err)
	}
	os.Remove(filepath.Join(dir, tokenizerFile))
	if _, err := m.Tokenizer(); err == nil || !strings.Contains(err.Error(), "no tokenizer.json") {
		t.Errorf("without tokenizer.json: %v", err)
	}
	if digest := open(t, dir).Profile().Tokenizer; digest != "" {
		t.Errorf("digest %q of no tokenizer", digest)
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, path := range checkpoints {
		b.Run(fmt.Sprint(filepath.Base(path)), func(b *testing.B) {
			for b.Loop() {
				m, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				m.Close()
			}
		})
	}
}
