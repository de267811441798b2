package run

import (
	"math"
	"testing"
)

func TestGreedySampling(t *testing.T) {
	s := newSampler(0, 1)
	if got := s.pick([]float32{-1, 3, 2, 3}); got != 1 {
		t.Errorf("got %d, want the first of the largest", got)
	}
}

// Sampling follows the softmax of logits / temperature, and the seed alone
// decides.
func TestTemperature(t *testing.T) {
	logits := []float32{1, 3, -2, 2.5, float32(math.Inf(-1))}
	for _, temperature := range []float64{0.5, 1, 3} {
		s, again, other := newSampler(temperature, 7), newSampler(temperature, 7), newSampler(temperature, 8)
		const n = 50000
		counts := make([]float64, len(logits))
		same := true
		for range n {
			id := s.pick(logits)
			if id != again.pick(logits) {
				t.Fatal("the same seed gave another token")
			}
			same = same && id == other.pick(logits)
			counts[id]++
		}
		if same {
			t.Error("another seed gave the same tokens")
		}
		var sum float64
		for _, x := range logits {
			sum += math.Exp(float64(x) / temperature)
		}
		for i, x := range logits {
			p := math.Exp(float64(x)/temperature) / sum
			if got := counts[i] / n; math.Abs(got-p) > 5*math.Sqrt(p*(1-p)/n) {
				t.Errorf("temperature %v: token %d came %.4f of the time, want %.4f", temperature, i, got, p)
			}
		}
	}
	// Huge differences neither overflow nor lose the likeliest.
	if got := newSampler(1e-3, 1).pick([]float32{-1e30, 1e30, 0}); got != 1 {
		t.Errorf("got %d", got)
	}
}
