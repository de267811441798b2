package calib

import (
	"math"
	"path/filepath"
	"testing"

	"context"

	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
)

func TestLinkOfAPowerLaw(t *testing.T) {
	var points []linkPoint
	for i := range 8 {
		sum := math.Exp(float64(i) - 6)
		points = append(points, linkPoint{math.Log(sum), math.Log(1.2 * math.Pow(sum, 0.9))})
	}
	l := linkOf(points)
	if math.Abs(l.Scale-1.2) > 1e-9 || math.Abs(l.Exponent-0.9) > 1e-9 || l.Error > 1e-9 || l.Plans != 8 || l.Source != "fitted" {
		t.Errorf("link %+v", l)
	}
	// What a plan is off is in the error: one that lies off by 10 % when left
	// out of eight.
	points[3].kl += 0.1
	if l := linkOf(points); l.Error < 0.07 || l.Error > 0.3 {
		t.Errorf("error %g of a plan that is off by 10 %%", l.Error)
	}
	if l := linkOf(points[:3]); l != additiveLink() {
		t.Errorf("three plans give %+v", l)
	}
}

// More bytes are spent on what saves most.
func TestMixesRise(t *testing.T) {
	level := func(bytes int64, kl float64) doc.ItemLevel { return doc.ItemLevel{RAMBytes: bytes, KL: kl} }
	table := &doc.Table{Items: []doc.Item{
		{Levels: []doc.ItemLevel{level(40, 0), level(10, 1), level(20, 0.2), level(15, 0.9)}}, // 15 is above the hull
		{Levels: []doc.ItemLevel{level(10, 0.4), level(20, 0.1)}},
	}}
	got := mixes(table, []float64{0, 0.25, 0.5, 1})
	want := [][]int{{1, 0}, {2, 0}, {2, 1}, {0, 1}}
	for i := range want {
		if got[i][0] != want[i][0] || got[i][1] != want[i][1] {
			t.Errorf("mix %d: levels %v, want %v", i, got[i], want[i])
		}
	}
}

// The link of a measured table says what whole plans lose on other text.
func TestFitLink(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		if filepath.Base(dir) != "qwen3moe" {
			t.Skip("one model is enough")
		}
		b := ref.Open(2)
		defer b.Close()
		data := testData(t, m, g)
		encodings, levels, err := LevelSpec{Levels: []string{"3", "4", "5", "6"}, Group: 32, Scale: "bf16", Fit: "lsq"}.Expand()
		if err != nil {
			t.Fatal(err)
		}
		table, _, err := Measure(context.Background(), b, m, data, MeasureOptions{
			Encodings: encodings, Levels: levels, Threads: 2, Link: data, Progress: func(int, int) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Validate(); err != nil {
			t.Fatal(err)
		}
		l := &table.Link
		if l.Source != "fitted" || l.Plans < 7 || !(l.Error > 0 && l.Error < 0.6) || len(table.Data) != 2 {
			t.Errorf("link %+v of %d parts of text", l, len(table.Data))
		}
		t.Logf("link %+v", l)
	})
}
