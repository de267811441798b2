package run

import (
	"math"
	"math/rand/v2"
)

// sampler picks tokens from logits.
type sampler struct {
	temperature float64
	rng         *rand.Rand
}

// newSampler picks the likeliest token at temperature 0, else one by the
// softmax of logits / temperature.
func newSampler(temperature float64, seed uint64) *sampler {
	return &sampler{temperature: temperature, rng: rand.New(rand.NewPCG(seed, 0))}
}

// pick returns the index of a token. One number is drawn per token whatever
// the logits are. Of equal logits the first counts as the largest.
func (s *sampler) pick(logits []float32) int32 {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	if s.temperature == 0 {
		return int32(best)
	}
	peak := float64(logits[best])
	var sum float64
	for _, x := range logits {
		sum += math.Exp((float64(x) - peak) / s.temperature)
	}
	left := s.rng.Float64() * sum
	for i, x := range logits {
		left -= math.Exp((float64(x) - peak) / s.temperature)
		if left < 0 {
			return int32(i)
		}
	}
	return int32(best) // the sum was rounded
}
