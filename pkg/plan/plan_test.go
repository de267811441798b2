package plan_test

import (
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/plan"
	"substrate/pkg/synth"
)

func table(t testing.TB, s synth.Shape, l synth.Losses) *doc.Table {
	t.Helper()
	p, err := synth.Profile(s)
	if err != nil {
		t.Fatal(err)
	}
	table, err := synth.Table(p, l)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// The example of the original: 27 layers of 64 experts at 36 GB have a
// default path of some 5 GB and leave about 30 GB to the pool.
func TestOriginalExample(t *testing.T) {
	d, err := plan.Solve(table(t, synth.Shape{Experts: 64, TopK: 8}, synth.Losses{}), nil,
		doc.Budget{MaxRAMBytes: 36e9, QualityLossCap: 0.05, TargetTokensPerSec: 4},
		plan.Options{Objective: doc.ObjectiveCap, MaxConcurrent: 6})
	if err != nil {
		t.Fatal(err)
	}
	if d.Predicted.KL > 0.05 || d.Predicted.KL < 0.04 {
		t.Errorf("KL %v: want the cap of 0.05 just met", d.Predicted.KL)
	}
	if path := d.PeakBytes - d.PoolBytes; path < 4e9 || path > 8e9 {
		t.Errorf("default path of %d bytes: want about 5 GB", path)
	}
	if d.PoolBytes < 28e9 {
		t.Errorf("pool of %d bytes: want about 30 GB", d.PoolBytes)
	}
}
