package synth

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"substrate/pkg/plane"
)

// quantiles is a distribution of mean 0 and deviation 1, as 2^16 equally
// likely values: 16 random bits and a look-up take a fraction of the time of
// computing one.
type quantiles [1 << 16]float32

// newQuantiles makes a normal distribution, or with h > 0 one of heavier tails:
// Tukey's x*exp(h*x*x/2).
func newQuantiles(h float64) *quantiles {
	q, sum := new(quantiles), 0.0
	for i := range q {
		x := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(q))-1)
		x *= math.Exp(h * x * x / 2)
		q[i] = float32(x)
		sum += x * x
	}
	deviation := float32(math.Sqrt(sum / float64(len(q))))
	for i := range q {
		q[i] /= deviation
	}
	return q
}

// fill draws the values of dst.
func (q *quantiles) fill(rng *rand.PCG, dst []float32, deviation float64) {
	scale := float32(deviation)
	for len(dst) >= 4 {
		u := rng.Uint64()
		dst[0] = scale * q[uint16(u)]
		dst[1] = scale * q[uint16(u>>16)]
		dst[2] = scale * q[uint16(u>>32)]
		dst[3] = scale * q[uint16(u>>48)]
		dst = dst[4:]
	}
	for i := range dst {
		dst[i] = scale * q[uint16(rng.Uint64())]
	}
}

// codes are the values of a distribution as 16-bit floats.
type codes [1 << 16]uint16

// encode fills c with the values of q times a deviation.
func (c *codes) encode(q *quantiles, deviation float64, f plane.Float) {
	for i, x := range q {
		c[i] = f.Bits(float32(deviation) * x)
	}
}

// fill draws the values of dst, the same as [quantiles.fill] and an encoding
// of its result give, several times faster.
func (c *codes) fill(rng *rand.PCG, dst []byte) {
	for len(dst) >= 8 {
		u := rng.Uint64()
		v := uint64(c[uint16(u)]) | uint64(c[uint16(u>>16)])<<16 | uint64(c[uint16(u>>32)])<<32 | uint64(c[uint16(u>>48)])<<48
		binary.LittleEndian.PutUint64(dst, v)
		dst = dst[8:]
	}
	for ; len(dst) >= 2; dst = dst[2:] {
		binary.LittleEndian.PutUint16(dst, c[uint16(rng.Uint64())])
	}
}
