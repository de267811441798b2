package run

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"substrate/pkg/doc"
)

// ladderPlan is a plan of ops with ladders of deltas, as far as the
// controller looks at it.
func ladderPlan(pool int64, concurrent, persistence int, deltas ...[]int64) *doc.Plan {
	p := &doc.Plan{PoolBytes: pool, Escalation: doc.EscalationPolicy{Threshold: 0.15, PersistenceTokens: persistence, MaxConcurrent: concurrent}}
	for i, l := range deltas {
		b := doc.OpBundle{Op: fmt.Sprintf("op_%d", i)}
		for t, d := range append([]int64{0}, l...) {
			b.Tiers = append(b.Tiers, doc.Tier{Index: t, DeltaBytes: d})
		}
		p.OpBundles = append(p.OpBundles, b)
	}
	return p
}

// token lets the controller see one token and returns the tiers after it.
func token(c *TierController, disagreements ...float64) string {
	for op, d := range disagreements {
		c.Observe(op, d)
	}
	c.EndToken()
	var tiers []int
	for i := range c.ops {
		tiers = append(tiers, c.ActiveTier(i))
	}
	return fmt.Sprint(tiers, " ", c.PoolUsed())
}

func TestTierController(t *testing.T) {
	const lo, hi = 0.1, 0.5
	for _, tt := range []struct {
		name   string
		plan   *doc.Plan
		tokens [][]float64
		want   []string
	}{
		{"escalates within the token, one tier at a time, holds, decays",
			ladderPlan(100, 2, 3, []int64{10, 30}),
			[][]float64{{lo}, {hi}, {hi}, {hi}, {lo}, {lo}, {lo}, {lo}},
			[]string{"[0] 0", "[1] 10", "[2] 30", "[2] 30", "[2] 30", "[2] 30", "[0] 0", "[0] 0"}},
		{"disagreement holds an op where it is",
			ladderPlan(100, 2, 2, []int64{10}),
			[][]float64{{hi}, {lo}, {hi}, {lo}, {lo}},
			[]string{"[1] 10", "[1] 10", "[1] 10", "[1] 10", "[0] 0"}},
		{"the threshold itself is no disagreement", ladderPlan(100, 2, 2, []int64{10}), [][]float64{{0.15}}, []string{"[0] 0"}},
		{"no ladder", ladderPlan(100, 2, 2, nil), [][]float64{{hi}}, []string{"[0] 0"}},
		{"a pool too small for it", ladderPlan(5, 2, 2, []int64{10}), [][]float64{{hi}}, []string{"[0] 0"}},
		{"the second tier needs the difference only", ladderPlan(30, 2, 9, []int64{10, 30}), [][]float64{{hi}, {hi}}, []string{"[1] 10", "[2] 30"}},
		{"full of ops: the laziest makes way",
			ladderPlan(100, 2, 9, []int64{10}, []int64{10}, []int64{10}),
			[][]float64{{0.3, 0.2, 0}, {0.3, 0.2, 0.25}},
			[]string{"[1 1 0] 20", "[1 0 1] 20"}},
		{"full of bytes: as many as it takes make way",
			ladderPlan(25, 3, 9, []int64{10}, []int64{10}, []int64{20}),
			[][]float64{{0.3, 0.2, 0}, {0.3, 0.2, 0.9}},
			[]string{"[1 1 0] 20", "[0 0 1] 20"}},
		{"none makes way for an op that disagrees less",
			ladderPlan(100, 1, 9, []int64{10}, []int64{10}),
			[][]float64{{0.4, 0.3}, {0.4, 0.3}},
			[]string{"[1 0] 10", "[1 0] 10"}},
		{"none makes way in vain",
			ladderPlan(25, 3, 9, []int64{10}, []int64{10}, []int64{26}),
			[][]float64{{0.3, 0.2, 0}, {0.3, 0.2, 0.9}},
			[]string{"[1 1 0] 20", "[1 1 0] 20"}},
		{"of equals the one with most persistence left makes way",
			ladderPlan(100, 2, 9, []int64{10}, []int64{10}, []int64{10}),
			[][]float64{{0.2, 0, 0}, {0.1, 0.2, 0}, {0.1, 0.1, 0.3}},
			[]string{"[1 0 0] 10", "[1 1 0] 20", "[1 0 1] 20"}},
		{"no escalation is allowed", ladderPlan(100, 0, 2, []int64{10}), [][]float64{{hi}}, []string{"[0] 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewTierController(tt.plan)
			for i, d := range tt.tokens {
				if got := token(c, d...); got != tt.want[i] {
					t.Errorf("token %d: got %s, want %s", i, got, tt.want[i])
				}
			}
		})
	}
}

func TestForceDemoteAll(t *testing.T) {
	c := NewTierController(ladderPlan(100, 3, 9, []int64{10}, []int64{10}, []int64{10}))
	var changes []string
	c.OnChange = func(ch TierChange) {
		changes = append(changes, fmt.Sprintf("%d:%d>%d %s %d", ch.Op, ch.From, ch.To, ch.Reason, ch.PoolUsed))
	}
	token(c, 0.5, 0, 0.5)
	c.ForceDemoteAll()
	if c.PoolUsed() != 0 || c.ActiveTier(0)+c.ActiveTier(2) != 0 {
		t.Errorf("pool %d after all were demoted", c.PoolUsed())
	}
	if got, want := fmt.Sprint(changes), "[0:0>1 escalate 10 2:0>1 escalate 20 2:1>0 demote_all 10 0:1>0 demote_all 0]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Whatever is observed: the pool never overflows, its use is the sum of the
// active deltas, and no more ops are up than may be.
func TestTierControllerInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		var deltas [][]int64
		for range 1 + r.IntN(12) {
			var l []int64
			at := int64(0)
			for range r.IntN(3) {
				at += r.Int64N(50)
				l = append(l, at)
			}
			deltas = append(deltas, l)
		}
		plan := ladderPlan(r.Int64N(200), r.IntN(5), 1+r.IntN(6), deltas...)
		c := NewTierController(plan)
		for range 60 {
			for op := range deltas {
				c.Observe(op, r.Float64()*0.4)
				var used int64
				up := 0
				for i := range deltas {
					tier := c.ActiveTier(i)
					used += plan.OpBundles[i].Tiers[tier].DeltaBytes
					if tier > 0 {
						up++
					}
				}
				if used != c.PoolUsed() || used > plan.PoolBytes || up > plan.Escalation.MaxConcurrent || up != len(c.up) {
					t.Fatalf("pool %d of %d used, %d says the controller, %d ops up", used, plan.PoolBytes, c.PoolUsed(), up)
				}
			}
			if r.IntN(20) == 0 {
				c.ForceDemoteAll()
			}
			c.EndToken()
		}
	}
}

func TestTierControllerAllocatesNothing(t *testing.T) {
	c := NewTierController(ladderPlan(100, 2, 2, []int64{10}, []int64{10}, []int64{10}))
	c.OnChange = func(TierChange) {}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		for op := range 3 {
			c.Observe(op, float64((i*7+op*3)%11)/20)
		}
		i++
		c.EndToken()
	}); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
}

func BenchmarkTierController(b *testing.B) {
	var deltas [][]int64
	for range 2000 {
		deltas = append(deltas, []int64{10, 30})
	}
	c := NewTierController(ladderPlan(1000, 6, 32, deltas...))
	b.Run("lookup", func(b *testing.B) {
		sum := 0
		for i := 0; b.Loop(); i++ {
			sum += c.ActiveTier(i % 2000)
		}
		_ = sum
	})
	b.Run("escalate and evict", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			c.Observe(i%2000, 0.2+float64(i%97))
		}
	})
}
