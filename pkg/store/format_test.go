package store_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"substrate/internal/jsonio"
	"substrate/pkg/plane"
	"substrate/pkg/quant"
	"substrate/pkg/store"
)

// A reader that was written from FORMAT.md alone finds the same values.
func TestFormatSuffices(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	m := openModel(t, moeModel)
	path := filepath.Join(t.TempDir(), "m.sb")
	plan := makePlan(t, m.Profile(), mixed, nil)
	write(t, newBuild(t, spec(t, m, plan)), path, options(m))
	var stderr bytes.Buffer
	cmd := exec.Command(python, "testdata/read_store.py", path)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Plan("")
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, b := range plan.OpBundles {
		for range b.Tiers {
			want += len(s.Layout(p.Record(b.Tiers[0].Requires[0])).Tensors)
		}
	}
	lines := jsonio.NewDecoder("read_store.py", bufio.NewReader(bytes.NewReader(out)), 1<<16)
	got := 0
	for ; ; got++ {
		var line struct {
			Op     string `json:"op"`
			Tier   int    `json:"tier"`
			Role   string `json:"role"`
			Rows   int    `json:"rows"`
			Cols   int    `json:"cols"`
			SHA256 string `json:"sha256"`
		}
		if err := lines.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var parts []quant.Record
		for _, b := range plan.OpBundles {
			if b.Op != line.Op {
				continue
			}
			for _, id := range b.Tiers[line.Tier].Requires {
				r := p.Record(id)
				raw := make([]byte, s.Layout(r).Bytes)
				if err := s.Read(raw, r); err != nil {
					t.Fatal(err)
				}
				parts = append(parts, quant.Record{Layout: s.Layout(r), Bytes: raw})
			}
		}
		values := make([]float32, line.Rows*line.Cols)
		if err := quant.Dequantize(values, line.Role, parts...); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4*len(values))
		plane.EncodeFloat32(b, values)
		sum := sha256.Sum256(b)
		if hex.EncodeToString(sum[:]) != line.SHA256 {
			t.Errorf("op %s, tier %d, role %s: other values", line.Op, line.Tier, line.Role)
		}
	}
	if got != want {
		t.Errorf("%d tensors, want %d", got, want)
	}
}
