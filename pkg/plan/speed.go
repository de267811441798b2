package plan

import (
	"cmp"
	"math"
	"slices"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// Conservative numbers for a machine that was not measured: a laptop of some
// years ago. Plans made with them say so.
const (
	defaultReadBytesPerSec   = 500 << 20 // a SATA or a slow NVMe disk, direct reads
	defaultMemoryBytesPerSec = 8 << 30   // weights through one matrix product, two threads
	defaultDispatchNs        = 20_000    // norms, rope, softmax and the launch of one op
)

// speedBand is how far a prediction may be off on either side: the band is
// [1/speedBand, speedBand] around it.
const speedBand = 1.25

// readDepth is the queue depth at which the run reads ahead.
const readDepth = 4

// speeds predicts times from a machine document.
type speeds struct {
	kernels    map[int][]doc.KernelRate // by bits, one token, ascending by weights
	bits       []int                    // the keys, ascending
	reads      []doc.ReadPoint          // one depth, ascending by bytes
	limit      int64                    // bytes per second that the budget allows; 0: no limit
	dispatchNs float64
	source     string
}

// newSpeeds reads a machine document; nil is a machine that was not measured.
func newSpeeds(m *doc.Machine, limit int64) *speeds {
	s := &speeds{kernels: map[int][]doc.KernelRate{}, limit: limit, dispatchNs: defaultDispatchNs, source: doc.SourceDefault}
	if m == nil {
		return s
	}
	s.source = m.Source
	if m.Memory.DispatchNs > 0 {
		s.dispatchNs = float64(m.Memory.DispatchNs)
	}
	for _, k := range bestBackend(m.Kernels) {
		if k.Tokens == 1 {
			s.kernels[k.Bits] = append(s.kernels[k.Bits], k)
		}
	}
	for bits, rates := range s.kernels {
		slices.SortStableFunc(rates, func(a, b doc.KernelRate) int { return cmp.Compare(weights(a), weights(b)) })
		s.bits = append(s.bits, bits)
	}
	slices.Sort(s.bits)
	s.reads = depthOf(m.Reads)
	return s
}

// bestBackend keeps the rates of the backend and activations that a run takes
// by default.
func bestBackend(rates []doc.KernelRate) []doc.KernelRate {
	for _, want := range []struct{ backend, activations string }{{"mlx", ""}, {"cpu", "int8"}, {"cpu", ""}, {"ref", ""}} {
		var kept []doc.KernelRate
		for _, k := range rates {
			if k.Backend == want.backend && (want.activations == "" || k.Activations == want.activations) {
				kept = append(kept, k)
			}
		}
		if len(kept) > 0 {
			return kept
		}
	}
	return rates
}

func weights(k doc.KernelRate) int64 { return int64(k.Rows) * int64(k.Cols) }

// depthOf keeps the points of the depth nearest to readDepth.
func depthOf(points []doc.ReadPoint) []doc.ReadPoint {
	depth, far := 0, math.Inf(1)
	for _, p := range points {
		if d := math.Abs(math.Log(float64(p.Depth) / readDepth)); d < far {
			depth, far = p.Depth, d
		}
	}
	var kept []doc.ReadPoint
	for _, p := range points {
		if p.Depth == depth {
			kept = append(kept, p)
		}
	}
	return kept
}

// record is the time of one token through a record of op, without the op's
// fixed cost, in ns. An embedding costs nothing but where it is the head too.
func (s *speeds) record(op *doc.Op, e *doc.Encoding, tied bool) float64 {
	if op.Kind == doc.KindEmbedding && !tied {
		return 0
	}
	var ns float64
	for i := range op.Tensors {
		t := &op.Tensors[i]
		f, err := footprint.Format(t, e)
		if err != nil || t.Rows == 1 {
			continue
		}
		if e.Residual && !f.Coded() {
			continue
		}
		ns += s.product(f.Bits, f.DataBytes(t.Rows, t.Cols)+2*f.ScaleBytes(t.Rows, t.Cols), t.Rows, t.Cols)
	}
	return ns
}

// product is the time of one token through a matrix, in ns: that of the
// measured matrix of the nearest size, scaled by size. Widths that were not
// measured take the time per byte of the nearest one.
func (s *speeds) product(bits int, bytes int64, rows, cols int) float64 {
	if len(s.bits) == 0 {
		return float64(bytes) / defaultMemoryBytesPerSec * 1e9
	}
	nearest := slices.MinFunc(s.bits, func(a, b int) int {
		return cmp.Or(cmp.Compare(abs(a-bits), abs(b-bits)), cmp.Compare(a, b))
	})
	n := float64(rows) * float64(cols)
	rate := slices.MinFunc(s.kernels[nearest], func(a, b doc.KernelRate) int {
		return cmp.Compare(math.Abs(math.Log(n/float64(weights(a)))), math.Abs(math.Log(n/float64(weights(b)))))
	})
	perWeight := float64(rate.TimeNs) / float64(weights(rate))
	return n * perWeight * float64(bits) / float64(nearest)
}

// read is the time of reading bytes in records of size, in ns.
func (s *speeds) read(bytes float64, size int64) float64 {
	if bytes <= 0 {
		return 0
	}
	return bytes / s.bandwidth(size) * 1e9
}

// bandwidth is the rate of reads of one size, in bytes per second, linear in
// the logarithm of the size between measured points.
func (s *speeds) bandwidth(size int64) float64 {
	rate := float64(defaultReadBytesPerSec)
	switch n := len(s.reads); {
	case n > 0 && size <= s.reads[0].Bytes:
		rate = float64(s.reads[0].BytesPerSec)
	case n > 0 && size >= s.reads[n-1].Bytes:
		rate = float64(s.reads[n-1].BytesPerSec)
	case n > 0:
		i, _ := slices.BinarySearchFunc(s.reads, size, func(p doc.ReadPoint, size int64) int { return cmp.Compare(p.Bytes, size) })
		lo, hi := s.reads[i-1], s.reads[i]
		f := math.Log(float64(size)/float64(lo.Bytes)) / math.Log(float64(hi.Bytes)/float64(lo.Bytes))
		rate = float64(lo.BytesPerSec) + f*float64(hi.BytesPerSec-lo.BytesPerSec)
	case s.limit > 0:
		return float64(s.limit) // nothing measured: what the user says
	}
	if s.limit > 0 {
		rate = min(rate, float64(s.limit))
	}
	return rate
}

func abs(n int) int { return max(n, -n) }
