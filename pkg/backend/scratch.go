package backend

// Sizes that the scratch of the cpu backend follows from; its C half has the
// same, and a test compares them.
const (
	ScratchTokens     = 256       // rows of x that one pass of a product takes
	ScratchExpertRows = 64        // rows of experts' intermediates in one pass
	ScratchThread     = 84 << 10  // sums and decoded weights of one thread
	ScratchStack      = 128 << 10 // the stack of one thread
	ScratchLogits     = 64 << 10  // router logits of one pass
	ScratchFixed      = 64 << 10  // descriptors of one pass, frequencies of RoPE
)

// ScratchSpec is what a backend's scratch depends on.
type ScratchSpec struct {
	Rows    int // of the largest register
	Cols    int // inputs of the widest matrix
	HeadDim int // of the widest KV cache
	Threads int
}

// ScratchLayout says where the parts of scratch lie, in bytes from its start.
type ScratchLayout struct {
	// Activations rounded to 8 bits, with scales and sums, by groups of 64
	// and of 32 columns.
	Codes, Scales, Sums [2]int64
	CodeStride          int64    // of a row of Codes
	ScaleStride         [2]int64 // of a row of Scales and Sums, in floats
	Inner               int64    // experts' intermediates
	Row                 int64    // a decoded row of a matrix
	Logits              int64
	Cos, Sin            int64 // angles of RoPE
	AngleFloats         int   // room in Cos, and in Sin
	Fixed               int64
	Threads             int64 // [Threads][ScratchThread]
	Bytes               int64 // mapped size
}

// Scratch lays out the scratch of the cpu backend.
func Scratch(s ScratchSpec) ScratchLayout {
	var l ScratchLayout
	take := func(bytes int64) int64 {
		at := l.Bytes
		l.Bytes += (bytes + 63) &^ 63
		return at
	}
	rows, cols := int64(min(s.Rows, ScratchTokens)), int64(s.Cols)
	l.CodeStride = (cols + 63) &^ 63
	for i, group := range []int64{64, 32} {
		// Kernels read 16 scales at a time.
		l.ScaleStride[i] = (l.CodeStride/group + 15) &^ 15
		l.Codes[i] = take(rows * l.CodeStride)
		l.Scales[i] = take(4 * rows * l.ScaleStride[i])
		l.Sums[i] = take(4 * rows * l.ScaleStride[i])
	}
	l.Inner = take(4 * min(rows, ScratchExpertRows) * cols)
	l.Row = take(4 * cols)
	l.Logits = take(ScratchLogits)
	l.AngleFloats = max(int(rows), 8) * max(s.HeadDim, 128) / 2
	l.Cos = take(4 * int64(l.AngleFloats))
	l.Sin = take(4 * int64(l.AngleFloats))
	l.Fixed = take(ScratchFixed)
	l.Threads = take(ScratchThread * int64(s.Threads))
	return l
}

// ScratchBytes is the memory that the cpu backend holds beside slabs,
// registers, KV caches and 64 bytes per handle: activations rounded to 8 bits,
// experts' intermediates, and its threads. All of it is allocated while
// handles are made, none during an op. It is an upper bound for ref, too.
func ScratchBytes(s ScratchSpec) int64 {
	return Scratch(s).Bytes + ScratchStack*int64(s.Threads-1)
}
