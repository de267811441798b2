package arch

import (
	"fmt"
	"math"

	"substrate/pkg/doc"
)

// ropeFrequencies returns the HeadDim/2 inverse frequencies: the angle, in
// radians, by which one position turns each pair. The "llama3" rule keeps high
// frequencies, divides low ones by Factor and interpolates between
// (transformers, modeling_rope_utils.py).
func ropeFrequencies(a *doc.Architecture) ([]float32, error) {
	r, half := &a.RoPE, a.HeadDim/2
	freqs := make([]float32, half)
	for i := range freqs {
		f := 1 / math.Pow(r.Theta, float64(2*i)/float64(a.HeadDim))
		switch r.Type {
		case "default":
		case "linear":
			f /= r.Factor
		case "llama3":
			f = llama3Frequency(f, r)
		default:
			return nil, fmt.Errorf("rope type %q is not supported; supported are default, linear, llama3", r.Type)
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
