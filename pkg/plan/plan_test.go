package plan_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

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

// tinyMoE is a model of experts whose records take about 9 MiB in bf16.
func tinyMoE(t testing.TB) *doc.Table {
	return table(t, synth.Shape{Layers: 4, Hidden: 256, Heads: 4, Vocab: 1000, Context: 256, Experts: 8, TopK: 2, ExpertSize: 128}, synth.Losses{})
}

// tinyDense is a dense model of about 16 MiB in bf16.
func tinyDense(t testing.TB) *doc.Table {
	return table(t, synth.Shape{Layers: 6, Hidden: 256, Heads: 4, Vocab: 4000, Context: 256, Tied: true}, synth.Losses{})
}

// smallestRAM is the least memory that a table's model runs in.
func smallestRAM(t testing.TB, in *doc.Table) int64 {
	t.Helper()
	_, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 1}, plan.Options{})
	var infeasible *plan.InfeasibleError
	if !errors.As(err, &infeasible) || infeasible.SmallestRAM == 0 {
		t.Fatalf("no smallest memory: %v", err)
	}
	return infeasible.SmallestRAM
}

// The example of the original: 27 layers of 64 experts at 36 GB have a
// default path of some 5 GB and leave about 30 GB to the pool, of which the 6
// largest escalations take about 104 MB.
func TestOriginalExample(t *testing.T) {
	d, err := plan.Solve(table(t, synth.Shape{Experts: 64, TopK: 8}, synth.Losses{}), nil,
		doc.Budget{MaxRAMBytes: 36e9, QualityLossCap: 0.05, TargetTokensPerSec: 4},
		plan.Options{Objective: doc.ObjectiveCap, MaxConcurrent: 6})
	if err != nil {
		t.Fatal(err)
	}
	if d.Predicted.KL > 0.05 || d.Predicted.KL < 0.049 {
		t.Errorf("KL %v: want the cap of 0.05 just met", d.Predicted.KL)
	}
	if path := d.PeakBytes - d.PoolBytes; path < 4e9 || path > 8e9 {
		t.Errorf("default path of %d bytes: want about 5 GB", path)
	}
	if d.PoolBytes < 28e9 {
		t.Errorf("pool of %d bytes: want about 30 GB", d.PoolBytes)
	}
	var deltas []int64
	for _, b := range d.OpBundles {
		if len(b.Tiers) > 1 {
			deltas = append(deltas, b.Tiers[1].DeltaBytes)
		}
	}
	slices.Sort(deltas)
	var sum int64
	for _, n := range deltas[len(deltas)-6:] {
		sum += n
	}
	if sum < 80e6 || sum > 140e6 {
		t.Errorf("the 6 largest escalations take %d bytes: want about 104 MB", sum)
	}
}

// Whatever is asked, there is a plan that holds its promises (Solve validates
// it: the eight invariants), or an error that says what would do.
func TestSolveKeepsPromises(t *testing.T) {
	tables := []*doc.Table{
		table(t, synth.Shape{Layers: 2, Hidden: 256, Heads: 4, Vocab: 2000, Context: 256, Experts: 4, TopK: 2, ExpertSize: 512}, synth.Losses{}),
		table(t, synth.Shape{Layers: 2, Hidden: 256, Heads: 4, Vocab: 2000, Context: 256, Tied: true}, synth.Losses{}),
	}
	rapid.Check(t, func(t *rapid.T) {
		b := doc.Budget{
			MaxRAMBytes:        int64(rapid.IntRange(12<<20, 28<<20).Draw(t, "ram")),
			ContextTokens:      rapid.IntRange(1, 256).Draw(t, "context"),
			TargetTokensPerSec: rapid.SampledFrom([]float64{0, 1e-3, 100, 1000, 2000, 1e6}).Draw(t, "tps"),
			QualityLossCap:     rapid.SampledFrom([]float64{0, 0, 1e-4, 1e-2, 1}).Draw(t, "quality"),
			MaxSSDCacheBytes:   rapid.SampledFrom([]int64{0, 0, 3 << 20, 6 << 20, 20 << 20}).Draw(t, "disk"),
		}
		o := plan.Options{
			Strategy:      rapid.SampledFrom(plan.Strategies()).Draw(t, "strategy"),
			Objective:     rapid.SampledFrom([]string{"", doc.ObjectiveKL, doc.ObjectiveCap}).Draw(t, "objective"),
			MaxConcurrent: rapid.SampledFrom([]int{0, 1, 6, 1000}).Draw(t, "K"),
			Work:          rapid.SampledFrom([]int{1, 100_000}).Draw(t, "work"),
			PrefillChunk:  rapid.SampledFrom([]int{0, 1, 16, 100}).Draw(t, "chunk"),
		}
		in := rapid.SampledFrom(tables).Draw(t, "table")
		d, err := plan.Solve(in, nil, b, o)
		var infeasible *plan.InfeasibleError
		if errors.As(err, &infeasible) {
			checkSmallest(t, in, b, o, infeasible)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if d.PeakBytes > b.MaxRAMBytes {
			t.Fatalf("peak of %d bytes", d.PeakBytes)
		}
		if b.QualityLossCap > 0 && d.Predicted.KL > b.QualityLossCap {
			t.Fatalf("KL %v above the cap of %v", d.Predicted.KL, b.QualityLossCap)
		}
		if b.TargetTokensPerSec > 0 && d.Predicted.TokensPerSecLow < b.TargetTokensPerSec*(1-1e-9) {
			t.Fatalf("%v tokens per second, %v wanted", d.Predicted.TokensPerSecLow, b.TargetTokensPerSec)
		}
		text, err := doc.Write(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := doc.Read[doc.Plan]("plan", text); err != nil {
			t.Fatal(err)
		}
	})
}

// The same input gives the same bytes.
func TestSolveRepeats(t *testing.T) {
	for _, in := range []*doc.Table{tinyMoE(t), tinyDense(t)} {
		b := doc.Budget{MaxRAMBytes: smallestRAM(t, in) + 2<<20}
		var first []byte
		for range 2 {
			d, err := plan.Solve(in, nil, b, plan.Options{})
			if err != nil {
				t.Fatal(err)
			}
			text, err := doc.Write(d)
			if err != nil {
				t.Fatal(err)
			}
			if first != nil && !bytes.Equal(first, text) {
				t.Errorf("%s: the same input gave another plan", in.Profile.ModelID)
			}
			first = text
		}
	}
}

// checkSmallest checks that the smallest memory that an error names works and
// that one block less does not.
func checkSmallest(t *rapid.T, in *doc.Table, b doc.Budget, o plan.Options, e *plan.InfeasibleError) {
	if e.SmallestRAM == 0 {
		b.MaxRAMBytes = 1 << 40
		if _, err := plan.Solve(in, nil, b, o); err == nil {
			t.Fatal("more memory is said not to help, and does")
		}
		return
	}
	if e.SmallestRAM <= b.MaxRAMBytes {
		t.Fatalf("%v, of which there are %d", e, b.MaxRAMBytes)
	}
	b.MaxRAMBytes = e.SmallestRAM
	if _, err := plan.Solve(in, nil, b, o); err != nil {
		t.Fatalf("%v, but then: %v", e, err)
	}
	b.MaxRAMBytes -= 4096
	if _, err := plan.Solve(in, nil, b, o); err == nil && o.Strategy != plan.StrategyOptimal && b.QualityLossCap == 0 {
		t.Fatalf("%v, but less does it too", e)
	}
}

// More memory never hurts: no larger budget has a bound above what a smaller
// one reached, and the KL is no higher but for the gap and for what measurements
// cannot tell.
func TestMoreMemoryNeverHurts(t *testing.T) {
	for _, in := range []*doc.Table{tinyMoE(t), tinyDense(t)} {
		for _, strategy := range []string{plan.StrategyStatic, plan.StrategyOptimal} {
			best := math.Inf(1)
			least := smallestRAM(t, in)
			for ram := least; ram < least+20<<20; ram += 1 << 20 {
				d, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: ram, TargetTokensPerSec: 1}, plan.Options{Strategy: strategy, Work: 1_000_000})
				if err != nil {
					if !math.IsInf(best, 1) {
						t.Fatalf("%d bytes: %v", ram, err)
					}
					continue
				}
				if d.Predicted.KL > best*1.02+in.Floor {
					t.Errorf("%s %s: %d bytes: KL %v after %v", in.Profile.ModelID, strategy, ram, d.Predicted.KL, best)
				}
				if bound := float64(d.Certificate.LowerBound) * 1e-12; bound > best*(1+1e-9)+in.Floor {
					t.Errorf("%s %s: %d bytes: bound %v after a plan of %v", in.Profile.ModelID, strategy, ram, bound, best)
				}
				best = min(best, d.Predicted.KL)
			}
		}
	}
}

// The optimal plan is no worse than the controls at the same cap.
func TestOptimalBeatsControls(t *testing.T) {
	for _, in := range []*doc.Table{tinyMoE(t), tinyDense(t)} {
		least := smallestRAM(t, in)
		for _, more := range []int64{2 << 20, 4 << 20, 8 << 20} {
			ram := least + more
			b := doc.Budget{MaxRAMBytes: ram}
			kl := func(strategy string) float64 {
				d, err := plan.Solve(in, nil, b, plan.Options{Strategy: strategy, Work: 1_000_000})
				if err != nil {
					return math.Inf(1)
				}
				return d.Predicted.KL
			}
			optimal, static := kl(plan.StrategyOptimal), kl(plan.StrategyStatic)
			if optimal > static {
				t.Errorf("%d bytes: optimal %v, static %v", ram, optimal, static)
			}
			for _, control := range []string{plan.StrategyGreedyRDO, plan.StrategyUniform, plan.StrategyLayersOnly, plan.StrategyRandom, plan.StrategyInverted} {
				c := kl(control)
				if static > c*(1+1e-9) {
					t.Errorf("%d bytes: static %v, %s %v", ram, static, control, c)
				}
				t.Logf("%s, %d bytes: static %.3g, %s %.3g", in.Profile.ModelID, ram, static, control, c)
			}
		}
	}
}

func TestSolveRefuses(t *testing.T) {
	good := doc.Budget{MaxRAMBytes: 64 << 20}
	for name, c := range map[string]struct {
		spoil func(*doc.Table)
		b     doc.Budget
		o     plan.Options
	}{
		"no budget":            {b: doc.Budget{}},
		"negative budget":      {b: doc.Budget{MaxRAMBytes: -1}},
		"budget beyond 2^53":   {b: doc.Budget{MaxRAMBytes: math.MaxInt64}},
		"NaN quality":          {b: doc.Budget{MaxRAMBytes: 1 << 30, QualityLossCap: math.NaN()}},
		"infinite speed":       {b: doc.Budget{MaxRAMBytes: 1 << 30, TargetTokensPerSec: math.Inf(1)}},
		"context beyond model": {b: doc.Budget{MaxRAMBytes: 1 << 30, ContextTokens: 257}},
		"negative K":           {b: good, o: plan.Options{MaxConcurrent: -1}},
		"strategy":             {b: good, o: plan.Options{Strategy: "luck"}},
		"objective":            {b: good, o: plan.Options{Objective: "luck"}},
		"cache type":           {b: good, o: plan.Options{KVCacheType: "q1"}},
		"empty table":          {b: good, spoil: func(t *doc.Table) { t.Items = nil }},
		"empty model":          {b: good, spoil: func(t *doc.Table) { t.Profile.Ops, t.Items = nil, nil }},
		"NaN loss":             {b: good, spoil: func(t *doc.Table) { t.Items[0].Levels[0].KL = math.NaN() }},
		"infinite loss":        {b: good, spoil: func(t *doc.Table) { t.Items[0].Levels[0].KL = math.Inf(1) }},
		"bytes of another day": {b: good, spoil: func(t *doc.Table) { t.Items[0].Levels[0].RAMBytes++ }},
		"link that falls":      {b: good, spoil: func(t *doc.Table) { t.Link.Exponent = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			in := tinyMoE(t)
			if c.spoil != nil {
				c.spoil(in)
			}
			d, err := plan.Solve(in, nil, c.b, c.o)
			if err == nil {
				t.Fatalf("plan of %d bytes", d.PeakBytes)
			}
			var infeasible *plan.InfeasibleError
			if errors.As(err, &infeasible) {
				t.Errorf("called infeasible: %v", err)
			}
		})
	}
}

// Losses that rise with bits or are below zero are cleaned, and counted.
func TestCleanedLevels(t *testing.T) {
	in := tinyDense(t)
	b := doc.Budget{MaxRAMBytes: smallestRAM(t, in) + 2<<20}
	d, err := plan.Solve(in, nil, b, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Certificate.Cleaned != 0 {
		t.Errorf("%d cleaned levels of a sound table", d.Certificate.Cleaned)
	}
	levels := in.Items[1].Levels
	levels[2].KL = 2 * levels[0].KL // 4 bits worse than 2
	levels[4].KL = -1e-9
	if d, err = plan.Solve(in, nil, b, plan.Options{}); err != nil {
		t.Fatal(err)
	}
	if d.Certificate.Cleaned != 2 {
		t.Errorf("%d cleaned levels, want 2", d.Certificate.Cleaned)
	}
}

// One option, one op, K beyond the ops: small worlds have plans too.
func TestSmallWorlds(t *testing.T) {
	in := tinyDense(t)
	in.Items = slices.Clone(in.Items)
	for i := range in.Items {
		in.Items[i].Levels = in.Items[i].Levels[:1]
	}
	d, err := plan.Solve(in, nil, doc.Budget{MaxRAMBytes: 64 << 20}, plan.Options{MaxConcurrent: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if d.Escalation.MaxConcurrent != 0 || d.PoolBytes != 0 {
		t.Errorf("K %d, pool %d: want none, there is one level", d.Escalation.MaxConcurrent, d.PoolBytes)
	}
	one := table(t, synth.Shape{Layers: 1, Hidden: 64, Heads: 1, Vocab: 64, Context: 16, Intermediate: 64}, synth.Losses{})
	if _, err := plan.Solve(one, nil, doc.Budget{MaxRAMBytes: 18 << 20}, plan.Options{}); err != nil {
		t.Error(err)
	}
}

// What a plan needs does not fit less: experts that stream have a token's
// working set of slots, dense ops a ring.
func TestStreamingHasRoom(t *testing.T) {
	moe, dense := tinyMoE(t), tinyDense(t)
	d, err := plan.Solve(moe, nil, doc.Budget{MaxRAMBytes: smallestRAM(t, moe) + 1<<20}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Scheduled.Slots) == 0 {
		t.Fatal("nothing streams at a cap below the model")
	}
	for _, s := range d.Scheduled.Slots {
		if s.Slots < 2 {
			t.Errorf("layer %d has %d slots, a token needs 2", s.Layer, s.Slots)
		}
	}
	d, err = plan.Solve(dense, nil, doc.Budget{MaxRAMBytes: smallestRAM(t, dense) + 1<<20}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Scheduled.RingBytes == 0 || d.Predicted.ReadBytesPerToken == 0 {
		t.Errorf("ring of %d bytes, %d read per token", d.Scheduled.RingBytes, d.Predicted.ReadBytesPerToken)
	}
}

func FuzzSolve(f *testing.F) {
	f.Add(int64(18<<20), 0.0, 0.0, int64(0), int64(0), 6)
	f.Add(int64(64<<20), 0.05, 4.0, int64(1<<30), int64(1<<20), 1)
	f.Add(int64(math.MaxInt64), math.NaN(), math.Inf(1), int64(-1), int64(1), -1)
	in := tinyMoE(f)
	f.Fuzz(func(t *testing.T, ram int64, quality, tps float64, disk, rate int64, k int) {
		b := doc.Budget{MaxRAMBytes: ram, QualityLossCap: quality, TargetTokensPerSec: tps, MaxSSDCacheBytes: disk, SSDBytesPerSec: rate}
		d, err := plan.Solve(in, nil, b, plan.Options{MaxConcurrent: k})
		if err == nil {
			err = d.Validate()
		}
		var coded interface{ ExitCode() int }
		if err != nil && !errors.As(err, &coded) {
			t.Fatal(err)
		}
	})
}
