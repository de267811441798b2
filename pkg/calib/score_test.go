package calib

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestExp32(t *testing.T) {
	for x := float32(0); x > -100; x -= 0.0137 {
		want := math.Exp(float64(x))
		got := float64(exp32(x))
		if x < -87 {
			if got != 0 {
				t.Fatalf("exp32(%g) = %g, want 0", x, got)
			}
			continue
		}
		if rel := math.Abs(got-want) / want; rel > 3e-7 {
			t.Fatalf("exp32(%g) = %g, want %g: relative error %g", x, got, want, rel)
		}
	}
}

// slowKL is KL(softmax(a) || softmax(b)) straight from the definition.
func slowKL(a, b []float32) float64 {
	softmax := func(z []float32) []float64 {
		var sum float64
		p := make([]float64, len(z))
		for i, v := range z {
			p[i] = math.Exp(float64(v))
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	p, q := softmax(a), softmax(b)
	var kl float64
	for i := range p {
		kl += p[i] * math.Log(p[i]/q[i])
	}
	return kl
}

func TestScoreAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s Score
	var r Reference
	var want float64
	for range 50 {
		a, b := make([]float32, 333), make([]float32, 333)
		for i := range a {
			a[i] = float32(rng.NormFloat64() * 3)
			b[i] = a[i] + float32(rng.NormFloat64()*0.1)
		}
		r.Prepare(a)
		s.Add(&r, r.Compare(b), b[7], a[7])
		want += slowKL(a, b)
	}
	if math.Abs(s.KL-want) > 1e-5*want {
		t.Errorf("KL %g, want %g", s.KL, want)
	}
	if s.Tokens != 50 || s.SameTop+s.ConfidentFlips > 50 || s.SameTop < 30 {
		t.Errorf("%d tokens, %d same top, %d flips", s.Tokens, s.SameTop, s.ConfidentFlips)
	}
	z := []float32{1, 2, 3}
	r.Prepare(z)
	var same Score
	same.Add(&r, r.Compare(z), z[0], z[0])
	if same.KL > 1e-6 || same.SameTop != 1 || math.Abs(same.NLL-same.RefNLL) > 1e-6 {
		t.Errorf("a model equal to its reference scores %+v", same)
	}
}

func TestMeanStandardError(t *testing.T) {
	// 400 documents of equal length with KLs of known spread.
	rng := rand.New(rand.NewPCG(3, 4))
	docs := make([]Score, 400)
	for i := range docs {
		docs[i] = Score{Tokens: 10, KL: 10 * (1 + 0.5*rng.NormFloat64())}
	}
	mean, se := Mean(docs)
	if math.Abs(mean-1) > 0.1 || math.Abs(se-0.025) > 0.004 {
		t.Errorf("mean %g, standard error %g; want 1 and 0.025", mean, se)
	}
}
