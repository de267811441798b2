package synth

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/plane"
	"substrate/pkg/tokenizer"
)

// small shapes of both families.
func shapes() map[string]Shape {
	return map[string]Shape{
		"moe":   {Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 32, Vocab: 300, Experts: 6, TopK: 2, ExpertSize: 32},
		"dense": {Layers: 2, Hidden: 64, Heads: 4, Vocab: 259, Intermediate: 96, Tied: true, Weights: "f32"},
		"half":  {Layers: 1, Hidden: 64, Heads: 2, Vocab: 259, Intermediate: 96, Weights: "f16"},
	}
}

func makeCheckpoint(t testing.TB, s Shape, w Weights) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := Checkpoint(context.Background(), dir, s, w); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openModel(t testing.TB, dir string) *model.Model {
	t.Helper()
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestCheckpointProfile compares what a checkpoint says of itself with the
// profile that is made without it.
func TestCheckpointProfile(t *testing.T) {
	for name, s := range shapes() {
		t.Run(name, func(t *testing.T) {
			want, err := Profile(s)
			if err != nil {
				t.Fatal(err)
			}
			got := openModel(t, makeCheckpoint(t, s, Weights{})).Profile()
			ignored := cmpopts.IgnoreFields(doc.Profile{}, "ModelID", "HeaderSHA256", "Tokenizer")
			extra := cmpopts.IgnoreFields(doc.Architecture{}, "Extra")
			if diff := cmp.Diff(want, got, ignored, extra, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-profile +checkpoint:\n%s", diff)
			}
			if !got.Synthetic || got.Tokenizer == "" {
				t.Errorf("synthetic %v, tokenizer %q", got.Synthetic, got.Tokenizer)
			}
		})
	}
}

func TestCheckpointRepeats(t *testing.T) {
	s := shapes()["moe"]
	digest := func(s Shape, w Weights) string {
		sum, err := openModel(t, makeCheckpoint(t, s, w)).WeightsSHA256(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	want := digest(s, Weights{Seed: 7})
	if digest(s, Weights{Seed: 7, ShardBytes: 20000}) != want {
		t.Error("the same seed in other shards gives other weights")
	}
	for _, w := range []Weights{{Seed: 8}, {Seed: 7, Peak: 1}, {Seed: 7, Skew: -1}} {
		if digest(s, w) == want {
			t.Errorf("%+v gives the same weights", w)
		}
	}
	// Byte for byte, not only in the weights.
	one, two := makeCheckpoint(t, s, Weights{}), makeCheckpoint(t, s, Weights{})
	for _, file := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		a, err := os.ReadFile(filepath.Join(one, file))
		b, err2 := os.ReadFile(filepath.Join(two, file))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from run to run", file)
		}
	}
}

func TestCheckpointShards(t *testing.T) {
	const limit = 20000
	dir := makeCheckpoint(t, shapes()["moe"], Weights{ShardBytes: limit})
	files, err := filepath.Glob(filepath.Join(dir, "model-*.safetensors"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d shards, error %v", len(files), err)
	}
	const embedding = 300 * 64 * 2 // larger than a shard, has one for itself
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if data := info.Size() - 2000; data > limit && data > embedding {
			t.Errorf("%s has %d bytes", file, info.Size())
		}
	}
	openModel(t, dir)
}

// TestCheckpointValues checks the distributions.
func TestCheckpointValues(t *testing.T) {
	for name, s := range shapes() {
		m := openModel(t, makeCheckpoint(t, s, Weights{}))
		for _, op := range m.Profile().Ops {
			for i := range op.Tensors {
				tensor := &op.Tensors[i]
				x := make([]float32, tensor.Rows*tensor.Cols)
				if err := m.ReadTensor(x, tensor); err != nil {
					t.Fatal(err)
				}
				if op.Kind == doc.KindNorm { // its signs are another matter
					for i := range x {
						x[i] = max(x[i], -x[i])
					}
				}
				mean, deviation := moments(x)
				switch {
				case op.Kind == doc.KindLMHead:
					for id := range tensor.Rows {
						row := x[id*tensor.Cols:][:tensor.Cols]
						_, deviation := moments(row)
						if want := headSpread / math.Sqrt(float64(tensor.Cols)); used(id) && math.Abs(deviation-want) > 0.4*want {
							t.Errorf("%s: row %d of the head: deviation %v, want %v", name, id, deviation, want)
						}
						if want := float32(unusedLogit) / 64; !used(id) && max(row[0], -row[0]) != want {
							t.Errorf("%s: row %d of the head, which no text has, begins with %v, want %v", name, id, row[0], want)
						}
					}
				case tensor.Keep && tensor.Rows == 1: // norms
					if mean < 0.7 || mean > 1.6 && tensor.Role != doc.RoleQNorm || deviation < 0.1 {
						t.Errorf("%s: %s %s: mean %v, deviation %v", name, op.ID, tensor.Role, mean, deviation)
					}
				case tensor.Role == doc.RoleK || tensor.Role == doc.RoleUp:
					if want := 1 / math.Sqrt(float64(tensor.Cols)); math.Abs(mean) > 0.1*want || math.Abs(deviation-want) > 0.1*want {
						t.Errorf("%s: %s %s: mean %v, deviation %v, want 0 and %v", name, op.ID, tensor.Role, mean, deviation, want)
					}
				}
			}
		}
	}
}

func moments(x []float32) (mean, deviation float64) {
	var sum, square float64
	for _, v := range x {
		sum += float64(v)
		square += float64(v) * float64(v)
	}
	n := float64(len(x))
	return sum / n, math.Sqrt(max(square/n-sum/n*sum/n, 0))
}

func TestQuantiles(t *testing.T) {
	for _, h := range []float64{0, tails} {
		q := newQuantiles(h)
		var kurtosis float64
		for _, x := range q {
			kurtosis += math.Pow(float64(x), 4) / float64(len(q))
		}
		mean, deviation := moments(q[:])
		if math.Abs(mean) > 1e-6 || math.Abs(deviation-1) > 1e-6 {
			t.Errorf("h %v: mean %v, deviation %v", h, mean, deviation)
		}
		if heavy := kurtosis > 3.5; heavy != (h > 0) {
			t.Errorf("h %v: kurtosis %v", h, kurtosis)
		}
	}
}

func TestByteTokenizer(t *testing.T) {
	text, err := tokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.LoadBytes(text, "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "The planner", " \t\n\x00 z", "Grüße, 世界 🙂"} {
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]int32, len(text))
		for i := range want {
			want[i] = int32(specials + int(text[i]))
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%q is %v, want %v", text, ids, want)
		}
	}
}

func TestCheckpointRefused(t *testing.T) {
	ctx := context.Background()
	good := shapes()["moe"]
	for flag, change := range map[string]func(*Shape){
		"vocab":   func(s *Shape) { s.Vocab = 258 },
		"shared":  func(s *Shape) { s.Shared = 1 },
		"weights": func(s *Shape) { s.Weights = "q4_1" },
		"layers":  func(s *Shape) { s.Layers = -1 },
		"top-k":   func(s *Shape) { s.TopK = 7 },

		"kv-heads": func(s *Shape) { s.Heads, s.KVHeads = 4, 3 },
		"head-dim": func(s *Shape) { s.HeadDim = 7 },
	} {
		s := good
		change(&s)
		dir := filepath.Join(t.TempDir(), "model")
		err := Checkpoint(ctx, dir, s, Weights{})
		if e := (*ShapeError)(nil); !errors.As(err, &e) || e.Flag != flag {
			t.Errorf("%s: %v", flag, err)
		}
	}
	parent := t.TempDir()
	if err := Checkpoint(ctx, parent, good, Weights{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing folder: %v", err)
	}
	stopped, cancel := context.WithCancel(ctx)
	written := int64(0)
	err := Checkpoint(stopped, filepath.Join(parent, "model"), good, Weights{Progress: func(n int64) {
		if written += n; written > 50000 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("%v is left behind", left)
	}
}

func TestCheckpointBytes(t *testing.T) {
	for name, s := range shapes() {
		var written int64
		makeCheckpoint(t, s, Weights{Progress: func(n int64) { written += n }})
		if want, err := CheckpointBytes(s); err != nil || want != written {
			t.Errorf("%s: %d bytes written, %d announced, error %v", name, written, want, err)
		}
	}
}

// TestCodes compares the fast way of drawing encoded values with the plain one.
func TestCodes(t *testing.T) {
	q, c := newQuantiles(tails), new(codes)
	for _, f := range []plane.Float{plane.BF16, plane.F16} {
		for _, n := range []int{0, 1, 3, 4, 5, 64, 1001} {
			c.encode(q, 0.02, f)
			got, want, row := make([]byte, 2*n), make([]byte, 2*n), make([]float32, n)
			fast, slow := rand.NewPCG(1, uint64(n)), rand.NewPCG(1, uint64(n))
			for range 2 { // rows go on where the one before ended
				c.fill(fast, got)
				q.fill(slow, row, 0.02)
				f.Encode(want, row)
				if !bytes.Equal(got, want) {
					t.Errorf("%s, %d values: %x, want %x", f, n, got, want)
				}
			}
		}
	}
}

func BenchmarkFill(b *testing.B) {
	q, c, rng := newQuantiles(tails), new(codes), rand.NewPCG(1, 2)
	c.encode(q, 0.02, plane.BF16)
	row, raw := make([]float32, 4096), make([]byte, 2*4096)
	b.Run("codes", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			c.fill(rng, raw)
		}
	})
	b.Run("floats", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			q.fill(rng, row, 0.02)
			plane.BF16.Encode(raw, row)
		}
	})
}

func TestTableRefused(t *testing.T) {
	p, err := Profile(Shape{Layers: 2, Experts: 4, TopK: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300} {
		for flag, losses := range map[string]Losses{"spread": {Spread: bad}, "skew": {Skew: bad}} {
			_, err := Table(p, losses)
			if e := (*ShapeError)(nil); !errors.As(err, &e) || e.Flag != flag {
				t.Errorf("%s %v: %v", flag, bad, err)
			}
		}
	}
}
