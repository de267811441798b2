package calib

import "math"

// Score accumulates how a model's next-token distributions differ from a
// reference's, teacher-forced, over the tokens of one document.
type Score struct {
	Tokens         int
	KL             float64   // sum over tokens of KL(reference || model), nats
	NLL, RefNLL    float64   // sums of -log p(next token), nats
	SameTop        int       // tokens whose most likely successor is the reference's
	ConfidentFlips int       // of the others, those the reference preferred by more than ConfidentMargin
	KLs            []float64 // of every token, for percentiles
}

// ConfidentMargin is the gap between the reference's two largest
// probabilities above which a changed first choice counts as a confident flip.
const ConfidentMargin = 0.10

// Reference is one position's reference distribution, prepared once and
// compared with many models.
type Reference struct {
	P      []float32 // probabilities
	logZ   float64   // log sum exp of the logits
	plogp  float64   // sum of p log p
	Top    int
	Margin float64 // largest probability less the second largest
}

// Prepare computes the distribution of logits [vocab] into r, reusing its
// memory.
func (r *Reference) Prepare(logits []float32) {
	n := len(logits)
	if cap(r.P) < n {
		r.P = make([]float32, n)
	}
	r.P = r.P[:n]
	top, second := topTwo(logits)
	peak := logits[top]
	sum := expSum(r.P, logits, peak)
	inv := 1 / sum
	// sum p log p = sum p (z - peak) - log sum
	var pz float64
	for i, p := range r.P {
		q := float64(p) * inv
		pz += q * float64(logits[i]-peak)
		r.P[i] = float32(q)
	}
	r.logZ = float64(peak) + math.Log(sum)
	r.plogp = pz - math.Log(sum)
	r.Top = top
	r.Margin = float64(r.P[top] - r.P[second])
}

// Row is one position of a model compared with its reference.
type Row struct {
	KL   float64 // KL(reference || model), nats
	LogZ float64 // log sum exp of the model's logits
	Top  int     // the model's most likely successor
}

// Compare scores logits [vocab] against r.
func (r *Reference) Compare(logits []float32) Row {
	top, _ := topTwo(logits)
	peak := logits[top]
	logZ := float64(peak) + math.Log(expSum(nil, logits, peak))
	var pz float64
	for i, p := range r.P {
		pz += float64(p) * float64(logits[i]-peak)
	}
	// KL = sum p log p - sum p log q, log q = z - logZ.
	kl := r.plogp - pz + logZ - float64(peak)
	// KL is never negative; what is left below zero is rounding.
	return Row{KL: max(kl, 0), LogZ: logZ, Top: top}
}

// Add counts a row. logit and refLogit are the model's and the reference's
// logits of the token that follows.
func (s *Score) Add(r *Reference, row Row, logit, refLogit float32) {
	s.Tokens++
	s.KL += row.KL
	s.KLs = append(s.KLs, row.KL)
	s.NLL += row.LogZ - float64(logit)
	s.RefNLL += r.logZ - float64(refLogit)
	if row.Top == r.Top {
		s.SameTop++
	} else if r.Margin > ConfidentMargin {
		s.ConfidentFlips++
	}
}

// topTwo returns the indexes of the largest and second largest value; ties go
// to the lower index.
func topTwo(v []float32) (first, second int) {
	if len(v) < 2 {
		return 0, 0
	}
	first, second = 0, 1
	if v[1] > v[0] {
		first, second = 1, 0
	}
	for i := 2; i < len(v); i++ {
		switch {
		case v[i] > v[first]:
			first, second = i, first
		case v[i] > v[second]:
			second = i
		}
	}
	return first, second
}

// expSum returns the sum of exp(v - peak) and stores the terms in dst unless
// it is nil. Terms are float32 with a relative error below 3e-7 (see exp32),
// the sum is float64.
func expSum(dst, v []float32, peak float32) float64 {
	var sum float64
	for i, x := range v {
		e := exp32(x - peak)
		sum += float64(e)
		if dst != nil {
			dst[i] = e
		}
	}
	return sum
}

// exp32 is exp for arguments <= 0: 2^k times a polynomial in the remainder
// (degree 6 Taylor on [-ln2/2, ln2/2], error below 2e-7). It is several times
// faster than math.Exp, and scoring a vocabulary per token is most of what a
// KL costs outside the matrix products.
func exp32(x float32) float32 {
	if x < -87 {
		return 0
	}
	const (
		log2e = 1.4426950408889634
		ln2Hi = 0.693359375
		ln2Lo = -2.12194440e-4
	)
	k := int32(x*log2e - 0.5) // truncation of a negative value rounds to nearest
	r := x - float32(k)*ln2Hi - float32(k)*ln2Lo
	p := float32(1.0 / 720)
	p = p*r + 1.0/120
	p = p*r + 1.0/24
	p = p*r + 1.0/6
	p = p*r + 0.5
	p = p*r + 1
	p = p*r + 1
	return p * math.Float32frombits(uint32(k+127)<<23)
}

// Mean returns KL per token over documents with its standard error: tokens of
// one document are dependent, documents are not, so the error is that of a
// ratio of sums over documents (the delta method).
func Mean(docs []Score) (mean, stderr float64) {
	var kl, tokens float64
	for i := range docs {
		kl += docs[i].KL
		tokens += float64(docs[i].Tokens)
	}
	if tokens == 0 {
		return 0, 0
	}
	mean = kl / tokens
	n := float64(len(docs))
	if n < 2 {
		return mean, 0
	}
	var ss float64
	for i := range docs {
		d := docs[i].KL - mean*float64(docs[i].Tokens)
		ss += d * d
	}
	return mean, math.Sqrt(ss*n/(n-1)) / tokens
}
