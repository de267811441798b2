package calib

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
)

// A measurement that is interrupted again and again ends with the same table.
func TestInterruptedMeasurementHasTheSameTable(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		if filepath.Base(dir) != "qwen3moe" {
			t.Skip("one model is enough")
		}
		b := ref.Open(2)
		defer b.Close()
		data := testData(t, m, g)
		encodings, levels, err := LevelSpec{Levels: []string{"3", "4", "6"}, Group: 32, Scale: "bf16", Fit: "lsq"}.Expand()
		if err != nil {
			t.Fatal(err)
		}
		measure := func(ctx context.Context, j Journal, progress func(done, total int)) (*doc.Table, error) {
			ms, err := newMeasurement(b, m, data, MeasureOptions{})
			if err != nil {
				t.Fatal(err)
			}
			stream := newStreamPool(data, m.Profile().Architecture.HiddenSize, 0, 0, "").bytes()
			opt := MeasureOptions{Encodings: encodings, Levels: levels, Threads: 2, Link: data, Journal: j, Progress: progress}
			ms.opt.Levels, ms.opt.Encodings = levels, encodings
			opt.WorkRAM = ms.stageBytes(data) + 10*stream // some variants at a time
			table, _, err := Measure(ctx, b, m, data, opt)
			return table, err
		}
		want, err := measure(t.Context(), nil, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "journal")
		for stop := 25; ; stop += 15 {
			j, err := OpenJournal(path, "key")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			steps := 0
			got, err := measure(ctx, j, func(int, int) {
				if steps++; steps == stop {
					cancel()
				}
			})
			cancel()
			if err == nil {
				if !reflect.DeepEqual(got, want) {
					t.Error("the table differs from that of one run")
				}
				if j.Found() == 0 {
					t.Error("no interruption came between")
				}
				if err := j.Remove(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			j.Close()
		}
	})
}

func TestJournalForgetsWhatIsNotWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	open := func(key string) *FileJournal {
		j, err := OpenJournal(path, key)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := open("a")
	score := VariantScore{KL: []float64{0.1, 1e-300}, Tokens: []int{3, 4}, Shares: []float64{1}}
	for _, name := range []string{"one", "two"} {
		if err := j.Note(name, &score); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	j = open("a")
	var got VariantScore
	if ok, _ := j.Find("one", &got); !ok || !reflect.DeepEqual(got, score) || j.Found() != 1 {
		t.Errorf("found %+v of %d", got, j.Found())
	}
	j.Close()
	if j = open("b"); j.Found() != 0 {
		t.Error("another measurement's scores were taken")
	}
	j.Close()
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"variant\":\"a\",\"score\":{\"kl\":[1],\"tokens\":[2]}}\n"))
	f.Add([]byte("{\"variant\":\"a\",\"score\":{\"kl\":[1]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, end := parseJournal(text); end > len(text) {
			t.Errorf("%d of %d bytes are whole", end, len(text))
		}
	})
}
