package model

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// copyModel copies a golden checkpoint to a folder that a test may damage.
func copyModel(t testing.TB, model string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), model)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(testConfigs, model))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, b []byte, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	os.Remove(file) // the copy of a read-only file
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// safetensors makes a file of a header and data.
func safetensors(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

// splitSafetensors gives a file's header and data.
func splitSafetensors(b []byte) (header string, data []byte) {
	n := binary.LittleEndian.Uint64(b)
	return string(b[8 : 8+n]), b[8+n:]
}

func TestSafetensorsRefused(t *testing.T) {
	huge := binary.LittleEndian.AppendUint64(nil, 1<<40)
	for _, test := range []struct {
		file    []byte
		damaged bool
		want    string
	}{
		{nil, true, "offset 0: 0 bytes are too few"},
		{[]byte("1234567"), true, "offset 0: 7 bytes are too few"},
		{append(huge, "{}"...), false, "offset 0: header of 1099511627776 bytes in a file of 10"},
		{safetensors("{}", nil)[:9], true, "offset 0: header of 2 bytes in a file of 9"},
		{safetensors("[]", nil), false, "array where an object should be"},
		{safetensors(`{"a": 1}`, nil), false, "tensor a: "},
		{safetensors(`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}`, make([]byte, 8)), false, `member "a" occurs twice`},
		{safetensors(`{"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}`, make([]byte, 4)), false, `tensor a: unknown dtype "F31"`},
		{safetensors(`{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}`, make([]byte, 4)), false, "tensor a: shape [-1] is impossible"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}}`, make([]byte, 4)), false, "tensor a: shape [4294967296, 4294967296] is impossible"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}`, make([]byte, 4)), false, "tensor a: 4 bytes of data, shape [2] of F32 needs 8"},
		{safetensors(`{"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}`, make([]byte, 1)), false, "tensor a: shape [3] of F4 is not whole bytes"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}`, make([]byte, 4)), false, "tensor a: data_offsets [4, 0] are impossible"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}`, make([]byte, 4)), false, "tensor a: data_offsets [-4, 0] are impossible"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}`, make([]byte, 4)), false, "tensor a: data_offsets has 1 numbers"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}`, make([]byte, 7)), true, "tensor a: its data ends at 8, the file's at 7"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}`, make([]byte, 8)), true, "tensors have 4 bytes of data, the file 8"},
		{safetensors(`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}`, make([]byte, 8)), false, "tensor a: data starts at 4 where the one before ends at 0"},
		{safetensors(`{"b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}`, make([]byte, 12)), false, "tensor b: data starts at 4 where the one before ends at 8"},
	} {
		path := filepath.Join(t.TempDir(), "w.safetensors")
		write(t, test.file, path)
		f, err := openFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = safetensorsHeader(f, 0)
		f.c.Close()
		if err == nil || !strings.HasPrefix(err.Error(), "w.safetensors:") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q:\n got %v\nwant %s", test.file, err, test.want)
		}
		if e := (*Error)(nil); errors.As(err, &e) && e.Damaged != test.damaged {
			t.Errorf("%v: exit code %d", err, e.ExitCode())
		}
	}
}

func TestSafetensorsRead(t *testing.T) {
	header := `{"__metadata__": {"format": "pt"}, "b": {"dtype": "I64", "shape": [], "data_offsets": [4, 12]}, "a": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}, "none": {"dtype": "F32", "shape": [0, 9], "data_offsets": [4, 4]}}   `
	path := filepath.Join(t.TempDir(), "w.safetensors")
	write(t, safetensors(header, make([]byte, 12)), path)
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.c.Close()
	tensors, text, err := safetensorsHeader(f, 7)
	if err != nil || string(text) != header {
		t.Fatal(err)
	}
	got := fmt.Sprint(tensors)
	start := int64(8 + len(header))
	want := fmt.Sprint(table{
		"a":    {bf16, "BF16", []int64{1, 2}, 7, start, 4, nil},
		"b":    {dtypeNone, "I64", []int64{}, 7, start + 4, 8, nil},
		"none": {f32, "F32", []int64{0, 9}, 7, start + 4, 0, nil},
	})
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestFolderRefused damages a checkpoint in ways that only show in the whole.
func TestFolderRefused(t *testing.T) {
	replaceHeader := func(dir, file, old, new string) {
		header, data := splitSafetensors(read(t, dir, file))
		if !strings.Contains(header, old) {
			t.Fatalf("%s is not in the header of %s", old, file)
		}
		write(t, safetensors(strings.ReplaceAll(header, old, new), data), dir, file)
	}
	replaceIndex := func(dir, old, new string) {
		write(t, []byte(strings.ReplaceAll(string(read(t, dir, indexFile)), old, new)), dir, indexFile)
	}
	const shard1 = "model-00001-of-00003.safetensors"
	for _, test := range []struct {
		name, model string
		damage      func(dir string)
		want        string
	}{
		{"no config", "llama-gqa", func(dir string) { os.Remove(filepath.Join(dir, configFile)) }, "no config.json: want a Hugging Face folder or a .gguf file"},
		{"no weights", "llama-gqa", func(dir string) { os.Remove(filepath.Join(dir, weightsFile)) }, "no model.safetensors and no model.safetensors.index.json"},
		{"missing tensor", "llama-gqa", func(dir string) { replaceHeader(dir, weightsFile, "layers.1.mlp.up_proj", "layers.1.mlp.op_proj") },
			"missing model.layers.1.mlp.up_proj.weight [128, 64]; unexpected model.layers.1.mlp.op_proj.weight [128, 64]"},
		{"wrong shape", "llama-gqa", func(dir string) {
			write(t, edited(t, "llama-gqa", "num_key_value_heads", "1"), dir, configFile)
		}, "model.layers.0.self_attn.k_proj.weight has shape [32, 64], want [16, 64]"},
		{"wrong type", "llama-gqa", func(dir string) {
			replaceHeader(dir, weightsFile, `"model.norm.weight":{"dtype":"BF16"`, `"model.norm.weight":{"dtype":"I16"`)
		}, "model.norm.weight has type I16, which is not supported"},
		{"too few layers", "llama-gqa", func(dir string) {
			write(t, edited(t, "llama-gqa", "num_hidden_layers", "2"), dir, configFile)
		}, "unexpected model.layers.2.input_layernorm.weight [64]"},
		{"many faults", "llama-gqa", func(dir string) {
			write(t, edited(t, "llama-gqa", "num_hidden_layers", "5"), dir, configFile)
		}, "; and 6 more"},
		{"untied without lm_head", "llama-gqa", func(dir string) {
			write(t, edited(t, "llama-gqa", "tie_word_embeddings", "false"), dir, configFile)
		}, "missing lm_head.weight [320, 64]"},
		{"tied with another lm_head", "qwen3moe", func(dir string) {
			write(t, edited(t, "qwen3moe", "tie_word_embeddings", "true"), dir, configFile)
		}, "tensor lm_head.weight: differs from model.embed_tokens.weight although tie_word_embeddings is true"},
		{"shard outside", "qwen3moe", func(dir string) { replaceIndex(dir, shard1, "../"+shard1) }, `"../model-00001-of-00003.safetensors" is not a .safetensors file inside the folder`},
		{"shard absolute", "qwen3moe", func(dir string) { replaceIndex(dir, shard1, "/etc/w.safetensors") }, "is not a .safetensors file inside the folder"},
		{"shard of another kind", "qwen3moe", func(dir string) { replaceIndex(dir, shard1, "config.json") }, `"config.json" is not a .safetensors file inside the folder`},
		{"missing shard", "qwen3moe", func(dir string) { os.Remove(filepath.Join(dir, shard1)) }, "no such file"},
		{"index without map", "qwen3moe", func(dir string) { write(t, []byte("{}"), dir, indexFile) }, "/weight_map: missing or empty"},
		{"index with another place", "qwen3moe", func(dir string) {
			replaceIndex(dir, `"model.norm.weight": "model-00003-of-00003.safetensors"`, `"model.norm.weight": "model-00002-of-00003.safetensors"`)
		}, "tensor model.norm.weight: is not in model-00002-of-00003.safetensors, where the index says it is"},
		{"twice", "qwen3moe", func(dir string) {
			write(t, read(t, dir, shard1), dir, "copy.safetensors")
			replaceIndex(dir, `"model.norm.weight": "model-00003-of-00003.safetensors"`, `"model.norm.weight": "copy.safetensors"`)
		}, "model-00001-of-00003.safetensors: tensor "},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := copyModel(t, test.model)
			test.damage(dir)
			m, err := Open(dir)
			if err == nil {
				m.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
	dir := copyModel(t, "llama-gqa")
	os.Remove(filepath.Join(dir, weightsFile))
	if err := syscall.Mkfifo(filepath.Join(dir, weightsFile), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe instead of weights: %v", err)
	}
	for _, file := range []string{configFile, weightsFile} {
		if _, err := Open(filepath.Join(testConfigs, "llama-gqa", file)); err == nil || !strings.Contains(err.Error(), "give the folder") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestTiedCopy reads a file that has the tied matrix twice.
func TestTiedCopy(t *testing.T) {
	dir := copyModel(t, "llama-gqa")
	header, data := splitSafetensors(read(t, dir, weightsFile))
	members, err := jsonio.Members("", []byte(header))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.Name != "model.embed_tokens.weight" {
			continue
		}
		var at struct {
			Offsets []int `json:"data_offsets"`
		}
		if err := jsonio.UnmarshalLoose("", m.Value, &at); err != nil {
			t.Fatal(err)
		}
		n := at.Offsets[1] - at.Offsets[0]
		copied := fmt.Sprintf(`{"lm_head.weight": {"dtype": "BF16", "shape": [320, 64], "data_offsets": [%d, %d]},`, len(data), len(data)+n)
		write(t, safetensors(copied+header[1:], append(data, data[at.Offsets[0]:at.Offsets[1]]...)), dir, weightsFile)
	}
	p := open(t, dir).Profile()
	if head := p.Ops[len(p.Ops)-1]; head.Shares != doc.OpEmbedding {
		t.Errorf("lm_head is %+v", head)
	}
}

// TestHubCache opens a folder of symbolic links as the hub's cache has them.
func TestHubCache(t *testing.T) {
	root := t.TempDir()
	blobs, snapshot := filepath.Join(root, "models--org--name", "blobs"), filepath.Join(root, "models--org--name", "snapshots", "12ab")
	if err := errors.Join(os.MkdirAll(blobs, 0o755), os.MkdirAll(snapshot, 0o755)); err != nil {
		t.Fatal(err)
	}
	for i, file := range []string{configFile, weightsFile, tokenizerFile} {
		write(t, read(t, testConfigs, "llama-gqa", file), blobs, fmt.Sprint(i))
		if err := os.Symlink(filepath.Join("..", "..", "blobs", fmt.Sprint(i)), filepath.Join(snapshot, file)); err != nil {
			t.Fatal(err)
		}
	}
	if id := open(t, snapshot).Profile().ModelID; id != "org/name" {
		t.Errorf("model id %q", id)
	}
}

// TestDamagedWhileOpen reads from files that changed since they were opened.
func TestDamagedWhileOpen(t *testing.T) {
	dir := copyModel(t, "llama-gqa")
	weights := filepath.Join(dir, weightsFile)
	write(t, read(t, weights), weights) // writable
	m := open(t, dir)
	norm := m.Profile().Ops[len(m.Profile().Ops)-2].Tensors[0]
	x := make([]float32, norm.Cols)

	f, err := os.OpenFile(weights, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info := m.tensors[norm.Source.Name]
	if _, err := f.WriteAt([]byte{0xc0, 0x7f}, info.offset+2*5); err != nil { // NaN
		t.Fatal(err)
	}
	want := "model.safetensors: tensor model.norm.weight: value [0, 5] is not a finite number"
	if err := m.ReadTensor(x, &norm); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := f.Truncate(info.offset + 6); err != nil {
		t.Fatal(err)
	}
	want = fmt.Sprintf("model.safetensors: offset %d: the file ends here, it had 266056 bytes when it was opened", info.offset+6)
	err = m.ReadTensor(x, &norm)
	if e := (*Error)(nil); !errors.As(err, &e) || err.Error() != want || e.ExitCode() != 4 {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := m.ReadTensor(x, &norm); err == nil {
		t.Error("a closed model was read")
	}
}

func TestReadArguments(t *testing.T) {
	m := open(t, "testdata/qwen3moe.gguf")
	var expert doc.Tensor
	eachTensor(m.Profile(), func(op *doc.Op, tensor *doc.Tensor) {
		if op.ID == "block_1.expert_7" && tensor.Role == doc.RoleUp {
			expert = *tensor
		}
	})
	good := make([]float32, expert.Rows*expert.Cols)
	if err := m.ReadTensor(good, &expert); err != nil {
		t.Fatal(err)
	}
	bad := func(what string, err error) {
		if err == nil {
			t.Errorf("%s: read", what)
		}
	}
	bad("short", m.ReadTensor(good[1:], &expert))
	bad("rows below", m.ReadRows(good[:expert.Cols], &expert, -1, 1))
	bad("rows above", m.ReadRows(good[:expert.Cols], &expert, expert.Rows, 1))
	bad("rows overflow", m.ReadRows(good[:expert.Cols], &expert, 1, math.MaxInt))
	other := expert
	other.Source.Index = 8
	bad("index", m.ReadTensor(good, &other))
	other = expert
	other.Rows++
	bad("shape", m.ReadTensor(make([]float32, other.Rows*other.Cols), &other))
	other = expert
	other.Source.Name = "none"
	bad("name", m.ReadTensor(good, &other))
}

func TestWeightsSHA256(t *testing.T) {
	ctx := context.Background()
	digest := func(path string) string {
		t.Helper()
		sum, err := open(t, path).WeightsSHA256(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	want := digest(filepath.Join(testConfigs, "qwen3moe"))

	// One file instead of three: the same weights.
	dir := copyModel(t, "qwen3moe")
	m := open(t, dir)
	var header []string
	var data []byte
	for _, name := range m.tensors.names() {
		info := m.tensors[name]
		b := make([]byte, info.bytes)
		if err := m.files[info.file].readAt(b, info.offset); err != nil {
			t.Fatal(err)
		}
		header = append(header, fmt.Sprintf(`%q: {"dtype": %q, "shape": %s, "data_offsets": [%d, %d]}`, name, info.typeName, formatShape(info.shape), len(data), len(data)+len(b)))
		data = append(data, b...)
	}
	write(t, safetensors("{"+strings.Join(header, ",")+"}", data), dir, weightsFile)
	if got := digest(dir); got != want {
		t.Errorf("digest %s of one file, %s of three", got, want)
	}
	before := open(t, dir).Profile().HeaderSHA256
	data[17] ^= 1
	write(t, safetensors("{"+strings.Join(header, ",")+"}", data), dir, weightsFile)
	if digest(dir) == want {
		t.Error("another weight, but the same digest")
	}
	if open(t, dir).Profile().HeaderSHA256 != before {
		t.Error("another weight gives another header digest")
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.WeightsSHA256(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestHeaderSHA256(t *testing.T) {
	dir := copyModel(t, "llama-gqa")
	digests := map[string]bool{open(t, dir).Profile().HeaderSHA256: true}
	write(t, edited(t, "llama-gqa", "rms_norm_eps", "1e-06"), dir, configFile)
	digests[open(t, dir).Profile().HeaderSHA256] = true
	write(t, []byte(`{"eos_token_id": 4}`), dir, generationFile)
	digests[open(t, dir).Profile().HeaderSHA256] = true
	header, data := splitSafetensors(read(t, dir, weightsFile))
	write(t, safetensors(header+" ", data), dir, weightsFile)
	digests[open(t, dir).Profile().HeaderSHA256] = true
	if len(digests) != 4 {
		t.Errorf("%d digests of four different headers", len(digests))
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add([]byte(`{"a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}, "b": {"dtype": "F4", "shape": [2], "data_offsets": [8, 9]}}`), int64(9))
	f.Add([]byte(`{"__metadata__": {"format": "pt"}, "none": {"dtype": "BF16", "shape": [0, 9], "data_offsets": [0, 0]}}`), int64(0))
	f.Fuzz(func(t *testing.T, header []byte, dataBytes int64) {
		tensors, err := parseSafetensors("fuzz", header, dataBytes)
		if err != nil {
			return
		}
		var sum int64
		for name, info := range tensors {
			if info.offset < 0 || info.bytes < 0 || info.offset > dataBytes-info.bytes {
				t.Errorf("tensor %q: %d bytes at %d of %d", name, info.bytes, info.offset, dataBytes)
			}
			sum += info.bytes
		}
		if sum != dataBytes {
			t.Errorf("tensors of %d bytes in %d", sum, dataBytes)
		}
	})
}

// FuzzQuantized reads folders of codes and scales, of any shapes: what opens can be read, or says why not.
func FuzzQuantized(f *testing.F) {
	const mlx = `{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 2, "intermediate_size": 32,
		"tie_word_embeddings": true, "quantization": {"group_size": 32, "bits": 4, "model.embed_tokens": {"group_size": 32, "bits": 8}}}`
	f.Add([]byte(mlx), []byte(`{"model.embed_tokens.weight": {"dtype": "U32", "shape": [2, 8], "data_offsets": [0, 64]},
		"model.embed_tokens.scales": {"dtype": "F16", "shape": [2, 1], "data_offsets": [64, 68]},
		"model.embed_tokens.biases": {"dtype": "F16", "shape": [2, 1], "data_offsets": [68, 72]}}`), int64(72))
	f.Add(edited(f, "gpt-oss"), []byte(`{"a_blocks": {"dtype": "U8", "shape": [1, 2, 1, 16], "data_offsets": [0, 32]},
		"a_scales": {"dtype": "U8", "shape": [1, 2, 1], "data_offsets": [32, 34]}}`), int64(34))
	f.Fuzz(func(t *testing.T, config, header []byte, dataBytes int64) {
		if dataBytes < 0 || dataBytes > 1<<20 {
			return
		}
		mc, err := parseConfig(configFile, config, nil)
		if err != nil || mc.quantization == nil || mc.arch.Layers > 4 || mc.arch.Experts > 64 {
			return
		}
		tensors, err := parseSafetensors("fuzz", header, dataBytes)
		if err != nil {
			return
		}
		m := &Model{path: "fuzz", tensors: tensors, files: []*file{{r: bytes.NewReader(make([]byte, dataBytes)), name: "fuzz", size: dataBytes}}}
		m.buffers.New = func() any {
			b := make([]byte, chunkBytes)
			return &b
		}
		if mc.quantization.join(m) != nil {
			return
		}
		m.profile = newProfile("fuzz", mc.family, &mc.arch, mc.names(m.tensors))
		_ = bind("fuzz", m.profile, m.tensors, m.ignored)
		eachTensor(m.profile, func(op *doc.Op, tensor *doc.Tensor) {
			if n := int64(tensor.Rows) * int64(tensor.Cols); n <= 1<<16 {
				_ = m.ReadTensor(make([]float32, n), tensor)
			}
		})
	})
}
