package arch

import (
	"fmt"
	"math"

	"substrate/pkg/doc"
)

// ropeFrequencies returns the RoPEDim/2 inverse frequencies: the angle, in
// radians, by which one position turns each pair. The "llama3" and "yarn"
// rules keep high frequencies, divide low ones by Factor and interpolate
// between (transformers, modeling_rope_utils.py).
func ropeFrequencies(a *doc.Architecture) ([]float32, error) {
	r, dim := &a.RoPE, a.RoPEDim()
	freqs := make([]float32, dim/2)
	low, high := yarnRange(r, dim)
	for i := range freqs {
		f := 1 / math.Pow(r.Theta, float64(2*i)/float64(dim))
		switch r.Type {
		case "default":
		case "linear":
			f /= r.Factor
		case "llama3":
			f = llama3Frequency(f, r)
		case "yarn":
			divided := max(0, min(1, (float64(i)-low)/(high-low)))
			f = f*(1-divided) + f/r.Factor*divided
		default:
			return nil, fmt.Errorf("rope type %q is not supported; supported are default, linear, llama3, yarn", r.Type)
		}
		freqs[i] = float32(f)
	}
	return freqs, nil
}

func llama3Frequency(f float64, r *doc.RoPE) float64 {
	original := float64(r.OriginalContext)
	wavelength := 2 * math.Pi / f
	switch {
	case wavelength < original/r.HighFreqFactor:
		return f
	case wavelength > original/r.LowFreqFactor:
		return f / r.Factor
	}
	smooth := (original/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
	return (1-smooth)*f/r.Factor + smooth*f
}

// yarnRange returns the pairs between which YaRN (arXiv:2309.00071) goes from
// frequencies that it keeps to ones that it divides by Factor: those that turn
// BetaFast and BetaSlow times in the original context.
func yarnRange(r *doc.RoPE, dim int) (low, high float64) {
	if r.Type != "yarn" {
		return 0, 1
	}
	pair := func(turns float64) float64 {
		return float64(dim) * math.Log(float64(r.OriginalContext)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high = pair(r.BetaFast), pair(r.BetaSlow)
	if r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))
	if low == high {
		high += 0.001
	}
	return low, high
}
