package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"substrate/pkg/backend"
	"substrate/pkg/plane"
)

// Where an input's second moments are the diagonal of its Gram matrix
// E[x x^T], gptq needs all of it. Statistics hold for an input what is
// smaller: the matrix's upper triangle, or rows of x themselves, from which
// the matrix is made when it is asked for.

// grams is the matrix of an input in a statistics file: rows of x in bf16, or the upper
// triangle of a Gram matrix, row by row, in float32.
type grams struct {
	rows   int    // of x; 0: a triangle
	cols   int    // inputs
	data   []byte // nil: at offset in the file
	offset int64
}

func (g *grams) bytes() int64 {
	if g.rows > 0 {
		return 2 * int64(g.rows) * int64(g.cols)
	}
	return 2 * int64(g.cols) * int64(g.cols+1)
}

// SetGram gives the mean of x x^T, [cols, cols] and symmetric, over the rows
// of the input of a matrix whose moments are set.
func (s *Stats) SetGram(op, role string, gram []float32, cols int) error {
	if len(gram) != cols*cols {
		return statsErrorf("", "op %q, role %q: a Gram matrix of %d values for %d inputs", op, role, len(gram), cols)
	}
	g := grams{cols: cols}
	g.data = make([]byte, 0, g.bytes())
	for i := range cols {
		for _, v := range gram[i*cols+i : (i+1)*cols] {
			g.data = binary.LittleEndian.AppendUint32(g.data, math.Float32bits(v))
		}
	}
	return s.setGrams(op, role, g)
}

// SetRows gives rows of x, [n, cols], in place of their Gram matrix. They are
// kept in bf16.
func (s *Stats) SetRows(op, role string, x []float32, cols int) error {
	if cols <= 0 || len(x) == 0 || len(x)%cols != 0 {
		return statsErrorf("", "op %q, role %q: %d values are not rows of %d inputs", op, role, len(x), cols)
	}
	g := grams{rows: len(x) / cols, cols: cols, data: make([]byte, 2*len(x))}
	plane.BF16.Encode(g.data, x)
	return s.setGrams(op, role, g)
}

func (s *Stats) setGrams(op, role string, g grams) error {
	name := InputName(op, role)
	if err := checkGrams("", name, &g, g.data); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in, ok := s.inputs[name]; !ok || in.cols != g.cols {
		return statsErrorf("", "input %q: a Gram matrix without moments of %d values", name, g.cols)
	}
	s.grams[name] = g
	s.layerGram = layerGram{}
	return nil
}

func checkGrams(file, name string, g *grams, data []byte) error {
	width, value := 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	if g.rows > 0 {
		width, value = 2, func(b []byte) float32 { return plane.BF16.Value(binary.LittleEndian.Uint16(b)) }
	}
	for i := 0; i < len(data); i += width {
		if v := value(data[i:]); !finite(v) {
			return statsErrorf(file, "input %q: value %d of its Gram matrix is %g", name, i/width, v)
		}
	}
	return nil
}

// expertGramTokens is how many tokens an expert must have seen for its own
// Gram matrix to weigh as much as its layer's. It is more than for moments:
// there are as many numbers per token to estimate as inputs.
const expertGramTokens = 64

// layerGram is the mean Gram matrix of a layer's experts, the last one asked
// for.
type layerGram struct {
	pattern [2]string
	gram    []float32
}

// Gram returns the mean of x x^T of the inputs of a matrix with cols columns,
// [cols, cols], nil if unknown (or s is nil). An expert's is shrunk to its
// layer's, the more the fewer tokens it saw.
func (s *Stats) Gram(op, role string, cols int) ([]float32, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := InputName(op, role)
	own, err := s.gram(name, cols)
	if err != nil {
		return nil, err
	}
	pattern, isExpert := layerPattern(name)
	if !isExpert {
		return own, nil
	}
	layer, err := s.meanGram(pattern, cols)
	if err != nil || layer == nil {
		return own, err
	}
	if own == nil {
		return append([]float32(nil), layer...), nil
	}
	share := float32(float64(s.inputs[name].tokens) / float64(s.inputs[name].tokens+expertGramTokens))
	for i, v := range layer {
		own[i] = float32(share*own[i]) + float32((1-share)*v)
	}
	return own, nil
}

// gram makes the Gram matrix of one input; nil if there is none.
func (s *Stats) gram(name string, cols int) ([]float32, error) {
	g, ok := s.grams[name]
	if !ok || s.inputs[name].tokens == 0 {
		return nil, nil
	}
	if g.cols != cols {
		return nil, statsErrorf(s.name, "input %q has %d values, the matrix %d columns: the statistics are of another model", name, g.cols, cols)
	}
	data := g.data
	if data == nil {
		data = make([]byte, g.bytes())
		if _, err := s.file.ReadAt(data, g.offset); err != nil {
			return nil, fmt.Errorf("%s: input %q: %w", s.name, name, err)
		}
		if err := checkGrams(s.name, name, &g, data); err != nil {
			return nil, err
		}
	}
	full := make([]float32, cols*cols)
	if g.rows > 0 {
		x := make([]float32, g.rows*cols)
		plane.BF16.Decode(x, data)
		AddGram(s.gemm(), full, x, cols)
		scale := 1 / float32(g.rows)
		for i := range full {
			full[i] *= scale
		}
		return full, nil
	}
	for i := range cols {
		row := full[i*cols+i : (i+1)*cols]
		plane.DecodeFloat32(row, data)
		data = data[4*len(row):]
	}
	mirror(full, cols)
	return full, nil
}

// meanGram is the mean of the Gram matrices of a layer's experts, weighted by
// tokens; nil if there are none.
func (s *Stats) meanGram(pattern [2]string, cols int) ([]float32, error) {
	if s.layerGram.pattern == pattern {
		return s.layerGram.gram, nil
	}
	sum := make([]float32, cols*cols)
	var tokens int64
	for _, name := range s.expertInputs(pattern) {
		gram, err := s.gram(name, cols)
		if err != nil {
			return nil, err
		}
		if gram == nil {
			continue
		}
		n := s.inputs[name].tokens
		for i, v := range gram {
			sum[i] += float32(float32(n) * v)
		}
		tokens += n
	}
	if tokens == 0 {
		sum = nil
	}
	for i := range sum {
		sum[i] /= float32(tokens)
	}
	s.layerGram = layerGram{pattern, sum}
	return sum, nil
}

// AddGram adds x^T x to sum, [cols, cols], for rows x of cols values. It
// computes the upper triangle and copies it to the lower one.
func AddGram(gemm backend.GEMM, sum, x []float32, cols int) {
	const tile, portion = 64, 256
	t := make([]float32, min(tile, cols)*portion)
	for from := 0; from < len(x)/cols; from += portion {
		n := min(portion, len(x)/cols-from)
		rows := x[from*cols:]
		for i := 0; i < cols; i += tile {
			m := min(tile, cols-i)
			for p := range n {
				for j, v := range rows[p*cols+i:][:m] {
					t[j*n+p] = v
				}
			}
			gemm(sum[i*cols+i:], cols, t, n, rows[i:], cols, m, cols-i, n)
		}
	}
	mirror(sum, cols)
}

// mirror copies the upper triangle of a to the lower one.
func mirror(a []float32, n int) {
	for i := range n {
		for j := i + 1; j < n; j++ {
			a[j*n+i] = a[i*n+j]
		}
	}
}

// GramLimit returns how many rows of x of an input may be kept so that, with a
// Gram matrix in place of rows wherever more than cols of them are allowed,
// the statistics of all inputs stay below bytes.
func GramLimit(inputs []GramInput, bytes int64) int {
	lo, hi := 0, 1
	for _, in := range inputs {
		hi = max(hi, in.Cols+1)
	}
	total := func(rows int) (sum int64) {
		for _, in := range inputs {
			each := int64(min(rows, in.Cols+1))
			sum += 2 * int64(in.Cols) * min(each*int64(in.Count), in.Tokens)
		}
		return sum
	}
	if total(hi) <= bytes {
		return hi
	}
	for hi-lo > 1 { // total(lo) fits, total(hi) does not
		if mid := (lo + hi) / 2; total(mid) <= bytes {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// GramInput is an input, or Count of them that see Tokens rows in sum, as the
// experts of a layer do.
type GramInput struct {
	Cols, Count int
	Tokens      int64
}

// gramSuffix and rowsSuffix follow an input's name in a statistics file.
const gramSuffix, rowsSuffix = ".gram", ".rows"
