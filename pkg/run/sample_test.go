package run

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowPick is pick as one would explain it: sort everything, cut, draw.
func slowPick(s Sampling, seen map[int32]bool, logits []float32, draw float64) int32 {
	type token struct {
		id    int32
		score float64
	}
	var all []token
	for i, x := range logits {
		score := float64(x)
		if p := s.RepetitionPenalty; p != 0 && seen[int32(i)] {
			if score > 0 {
				score /= p
			} else {
				score *= p
			}
		}
		all = append(all, token{int32(i), float64(float32(score))})
	}
	slices.SortStableFunc(all, func(a, b token) int { return cmp.Compare(b.score, a.score) })
	if s.Temperature == 0 {
		return all[0].id
	}
	if s.TopK > 0 {
		all = all[:min(len(all), s.TopK)]
	}
	probability := func(t token) float64 {
		var sum float64
		for _, u := range all {
			sum += math.Exp((u.score - all[0].score) / s.Temperature)
		}
		return math.Exp((t.score-all[0].score)/s.Temperature) / sum
	}
	if s.TopP > 0 {
		var mass float64
		for i, t := range all {
			if mass >= s.TopP {
				all = all[:i]
				break
			}
			mass += probability(t)
		}
	}
	for i, t := range all {
		if i > 0 && probability(t) < s.MinP*probability(all[0]) {
			all = all[:i]
			break
		}
	}
	if s.TopK == 0 && (s.TopP == 0 || s.TopP == 1) {
		slices.SortFunc(all, func(a, b token) int { return cmp.Compare(a.id, b.id) })
	}
	best := slices.MaxFunc(all, func(a, b token) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(b.id, a.id)) })
	var sum float64
	for _, t := range all {
		sum += math.Exp((t.score - best.score) / s.Temperature)
	}
	left := draw * sum
	for _, t := range all {
		if left -= math.Exp((t.score - best.score) / s.Temperature); left < 0 {
			return t.id
		}
	}
	return best.id
}

// The sampler picks what its slow twin picks, token after token.
func TestSamplerTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Sampling{
			RepetitionPenalty: rapid.SampledFrom([]float64{0, 1, 1.3, 0.8}).Draw(t, "penalty"),
			Temperature:       rapid.SampledFrom([]float64{0, 0.3, 1, 2.5}).Draw(t, "temperature"),
			TopK:              rapid.SampledFrom([]int{0, 1, 3, 1000}).Draw(t, "top k"),
			TopP:              rapid.SampledFrom([]float64{0, 0.013, 0.51, 0.93, 1}).Draw(t, "top p"),
			MinP:              rapid.SampledFrom([]float64{0, 0.0501, 0.49, 1}).Draw(t, "min p"),
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		vocab := rapid.IntRange(1, 70).Draw(t, "vocab")
		fast, rng := newSampler(s, vocab, seed), rand.New(rand.NewPCG(seed, 0))
		prompt := rapid.SliceOf(rapid.Int32Range(0, int32(vocab-1))).Draw(t, "prompt")
		fast.see(prompt)
		seen := map[int32]bool{}
		for _, id := range prompt {
			seen[id] = true
		}
		for range 10 {
			logits := rapid.SliceOfN(rapid.Float32Range(-4, 4), vocab, vocab).Draw(t, "logits")
			before := slices.Clone(logits)
			want := slowPick(s, seen, logits, rng.Float64())
			if got := fast.pick(logits); got != want {
				t.Fatalf("%+v: picked %d, want %d", s, got, want)
			}
			if !slices.Equal(logits, before) {
				t.Fatal("the logits changed")
			}
			seen[want] = true
		}
	})
}

func TestGreedySampling(t *testing.T) {
	s := newSampler(Sampling{}, 4, 1)
	if got := s.pick([]float32{-1, 3, 2, 3}); got != 1 {
		t.Errorf("got %d, want the first of the largest", got)
	}
}

// Sampling follows the softmax of logits / temperature, and the seed alone
// decides.
func TestTemperature(t *testing.T) {
	logits := []float32{1, 3, -2, 2.5, float32(math.Inf(-1))}
	for _, temperature := range []float64{0.5, 1, 3} {
		o := Sampling{Temperature: temperature}
		s, again, other := newSampler(o, 5, 7), newSampler(o, 5, 7), newSampler(o, 5, 8)
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
	if got := newSampler(Sampling{Temperature: 1e-3}, 3, 1).pick([]float32{-1e30, 1e30, 0}); got != 1 {
		t.Errorf("got %d", got)
	}
}

func TestSamplingCheck(t *testing.T) {
	nan := math.NaN()
	for _, s := range []Sampling{
		{Temperature: -1}, {Temperature: nan}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: 1.1}, {TopP: nan}, {MinP: -0.1}, {MinP: 2},
		{RepetitionPenalty: -1}, {RepetitionPenalty: nan}, {RepetitionPenalty: math.Inf(1)},
	} {
		if s.Check() == nil {
			t.Errorf("%+v passed", s)
		}
	}
}

// A token costs no allocation, whatever is asked for.
func TestSamplerAllocations(t *testing.T) {
	logits := make([]float32, 5000)
	for i := range logits {
		logits[i] = float32(i*7919%5000) / 500
	}
	s := newSampler(Sampling{Temperature: 1, TopK: 50, TopP: 0.9, MinP: 0.01, RepetitionPenalty: 1.1}, len(logits), 1)
	if n := testing.AllocsPerRun(20, func() { s.pick(logits) }); n != 0 {
		t.Errorf("%v allocations for a token", n)
	}
}

func BenchmarkSampler(b *testing.B) {
	logits := make([]float32, 151936)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	for name, o := range map[string]Sampling{
		"greedy": {}, "temperature": {Temperature: 0.8}, "top-k": {Temperature: 0.8, TopK: 40}, "top-p": {Temperature: 0.8, TopP: 0.95},
	} {
		b.Run(name, func(b *testing.B) {
			s := newSampler(o, len(logits), 1)
			for b.Loop() {
				s.pick(logits)
			}
		})
	}
}
