package quant

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func testStats(t testing.TB) *Stats {
	s := NewStats()
	for _, in := range []struct {
		op, role string
		tokens   int64
		mean     []float32
	}{
		{"block_0.attn", "q", 100, []float32{1, 2, 3}},
		{"block_0.expert_0", "gate", 96, []float32{1, 1}},
		{"block_0.expert_1", "gate", 32, []float32{5, 9}},
		{"block_0.expert_10", "down", 7, []float32{8}},
		{"lm_head", "weight", 100, []float32{0.5, 0}},
	} {
		if err := s.Set(in.op, in.role, in.tokens, in.mean); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestMoments(t *testing.T) {
	memory := testStats(t)
	var b bytes.Buffer
	if err := memory.Write(&b); err != nil {
		t.Fatal(err)
	}
	file, err := ReadStats("stats", bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op, role string
		cols     int
		want     []float32
	}{
		{"block_0.attn", "q", 3, []float32{1, 2, 3}},
		{"block_0.attn", "v", 3, []float32{1, 2, 3}}, // the same input
		{"block_0.attn", "o", 3, nil},
		{"block_0.expert_0", "up", 2, []float32{1.25, 1.5}}, // (96*1 + 32*2)/128, (96*1 + 32*3)/128
		{"block_0.expert_1", "gate", 2, []float32{3.5, 6}},  // half its own, half the layer's
		{"block_0.expert_2", "gate", 2, []float32{2, 3}},    // never seen: the layer's
		{"block_1.expert_0", "gate", 2, nil},
	} {
		for name, s := range map[string]*Stats{"memory": memory, "file": file} {
			got, err := s.Moments(c.op, c.role, c.cols)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: %s, %s: got %v, %v, want %v", name, c.op, c.role, got, err, c.want)
			}
		}
	}
	if _, err := file.Moments("block_0.attn", "k", 4); err == nil {
		t.Error("moments of another width: no error")
	}
	if got, err := (*Stats)(nil).Moments("block_0.attn", "q", 3); got != nil || err != nil {
		t.Errorf("nil statistics: %v, %v", got, err)
	}
}

func TestStatsFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "stats")
	path, err := testStats(t).Save(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := testStats(t).Save(dir)
	if err != nil || again != path {
		t.Errorf("saved again as %s, %v, first as %s", again, err, path)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("folder holds %v, want one file", entries)
	}
	digest := strings.TrimSuffix(filepath.Base(path), ".safetensors")
	s, err := FindStats(dir, digest)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.SHA256() != digest {
		t.Errorf("digest %s of file %s", s.SHA256(), path)
	}
	if _, err := FindStats(dir, strings.Repeat("0", 64)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("statistics that are not there: %v", err)
	}
	if _, err := FindStats(dir, "../"+digest); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("digest with a path: %v", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := FindStats(dir, digest); err == nil {
		t.Error("a damaged file was accepted")
	}
}

func TestSetRefuses(t *testing.T) {
	for name, mean := range map[string][]float32{"NaN": {float32(math.NaN())}, "negative": {-1}, "empty": {}} {
		if err := NewStats().Set("block_0.attn", "q", 1, mean); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzReadStats(f *testing.F) {
	var b bytes.Buffer
	if err := testStats(f).Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Clone(b.Bytes()))
	withGrams := testStats(f)
	if err := withGrams.SetGram("block_0.attn", "q", []float32{1, 2, 3, 2, 5, 6, 3, 6, 9}, 3); err != nil {
		f.Fatal(err)
	}
	if err := withGrams.SetRows("block_0.expert_1", "gate", []float32{1, 2, 3, 4}, 2); err != nil {
		f.Fatal(err)
	}
	b.Reset()
	if err := withGrams.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Clone(b.Bytes()))
	f.Add(b.Bytes()[:b.Len()-3])
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add(append([]byte("\x7a\x00\x00\x00\x00\x00\x00\x00"), `{"__metadata__":{"format":"sb.stats/1"},"tokens":{"dtype":"I64","shape":[1152921504606846976],"data_offsets":[0,8]}}      `...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadStats("stats", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		// What was accepted can be written, and read again to the same.
		var first, second bytes.Buffer
		if err := s.Write(&first); err != nil {
			t.Fatal(err)
		}
		again, err := ReadStats("again", bytes.NewReader(first.Bytes()), int64(first.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Write(&second); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Error("written twice with different bytes")
		}
	})
}
