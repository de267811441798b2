package plan

import (
	"cmp"
	"fmt"
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

const (
	// aheadDepth is how many reads ahead are under way at once: the ring has
	// room for the records of the next op alone.
	aheadDepth = 1
	// demandDepth is how many of a token's demands are: as many as sb-run has
	// workers, and experts the token.
	demandDepth = 4
)

// speeds predicts times from a machine document.
type speeds struct {
	kernels    map[int][]doc.KernelRate         // by bits, one token, ascending by weights
	bits       []int                            // the keys, ascending
	ahead      []doc.ReadPoint                  // at aheadDepth, ascending by bytes
	demands    [demandDepth + 1][]doc.ReadPoint // at each depth
	limit      int64                            // bytes per second that the budget allows; 0: no limit
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
	s.ahead = depthOf(m.Reads, aheadDepth)
	for depth := range s.demands {
		s.demands[depth] = depthOf(m.Reads, max(1, depth))
	}
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

// depthOf keeps the points of the depth nearest to the wanted one.
func depthOf(points []doc.ReadPoint, want int) []doc.ReadPoint {
	depth, far := 0, math.Inf(1)
	for _, p := range points {
		if d := math.Abs(math.Log(float64(p.Depth) / float64(want))); d < far {
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

// product is the time of one token through a matrix, in ns: between the
// measured matrices of the sizes next to it, linear in the size; beyond them
// as the nearest, scaled by size. Widths that were not measured take the time
// per bit of the nearest one.
func (s *speeds) product(bits int, bytes int64, rows, cols int) float64 {
	if len(s.bits) == 0 {
		return float64(bytes) / defaultMemoryBytesPerSec * 1e9
	}
	nearest := slices.MinFunc(s.bits, func(a, b int) int {
		return cmp.Or(cmp.Compare(abs(a-bits), abs(b-bits)), cmp.Compare(a, b))
	})
	n := float64(rows) * float64(cols)
	return timeOf(s.kernels[nearest], n) * float64(bits) / float64(nearest)
}

// timeOf is the time of a product of n weights by measured ones, ascending.
func timeOf(rates []doc.KernelRate, n float64) float64 {
	i := slices.IndexFunc(rates, func(k doc.KernelRate) bool { return float64(weights(k)) >= n })
	switch {
	case i < 0:
		i = len(rates) - 1
		fallthrough
	case i == 0:
		return n * float64(rates[i].TimeNs) / float64(weights(rates[i]))
	}
	lo, hi := &rates[i-1], &rates[i]
	f := (n - float64(weights(*lo))) / float64(weights(*hi)-weights(*lo))
	return float64(lo.TimeNs) + f*float64(hi.TimeNs-lo.TimeNs)
}

// read is the time of reading bytes ahead in records of size, in ns.
func (s *speeds) read(bytes float64, size int64) float64 {
	if bytes <= 0 {
		return 0
	}
	return bytes / s.bandwidth(size) * 1e9
}

// demand is the time of reading bytes in records of size that a token waits
// for, several of its experts at once, in ns.
func (s *speeds) demand(bytes float64, size int64, experts int) float64 {
	if bytes <= 0 {
		return 0
	}
	return bytes / s.rate(s.demands[min(max(0, experts), demandDepth)], size) * 1e9
}

// bandwidth is the rate of reads ahead of one size, in bytes per second.
func (s *speeds) bandwidth(size int64) float64 { return s.rate(s.ahead, size) }

// rate is linear in the logarithm of the size between measured points.
func (s *speeds) rate(reads []doc.ReadPoint, size int64) float64 {
	rate := float64(defaultReadBytesPerSec)
	switch n := len(reads); {
	case n > 0 && size <= reads[0].Bytes:
		rate = float64(reads[0].BytesPerSec)
	case n > 0 && size >= reads[n-1].Bytes:
		rate = float64(reads[n-1].BytesPerSec)
	case n > 0:
		i, _ := slices.BinarySearchFunc(reads, size, func(p doc.ReadPoint, size int64) int { return cmp.Compare(p.Bytes, size) })
		lo, hi := reads[i-1], reads[i]
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

// terms say what the time of a token is made of, and where each number is
// from.
func (s *speeds) terms(u *usage, dispatchNs float64) []doc.SpeedTerm {
	kernels, reads := doc.SourceDefault, doc.SourceDefault
	if len(s.bits) > 0 {
		k := s.kernels[s.bits[0]][0]
		kernels = s.source + " kernels of " + k.Backend
		if k.Activations != "" {
			kernels += ", " + k.Activations + " activations"
		}
	}
	if len(s.ahead) > 0 {
		reads = s.source + " reads"
	}
	terms := []doc.SpeedTerm{
		{Name: doc.TermProducts, Ns: int64(u.computeNs - dispatchNs), Source: kernels},
		{Name: doc.TermFixed, Ns: int64(dispatchNs), Source: s.source},
	}
	if u.ringNs > 0 {
		terms = append(terms, doc.SpeedTerm{Name: doc.TermAhead, Ns: int64(u.ringNs), Source: depthSource(reads, s.ahead)})
	}
	if u.demandNs > 0 {
		terms = append(terms, doc.SpeedTerm{Name: doc.TermDemand, Ns: int64(u.demandNs), Source: depthSource(reads, s.demands[demandDepth])})
	}
	return terms
}

// depthSource adds the queue depth to a source.
func depthSource(source string, reads []doc.ReadPoint) string {
	if len(reads) == 0 {
		return source
	}
	return fmt.Sprintf("%s, up to %d at once", source, reads[0].Depth)
}

func abs(n int) int { return max(n, -n) }
