package quant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// A Source gives the values of a model's tensors, as a checkpoint does. Its
// methods are called by several goroutines at once.
type Source interface {
	// ReadRows fills dst, row-major [rows, t.Cols], with rows row to row+rows
	// of t. t points into the op that is encoded.
	ReadRows(dst []float32, t *doc.Tensor, row, rows int) error
}

// A CodeSource is a Source that has some tensors as codes already.
type CodeSource interface {
	Source
	// ReadCodes fills dst with rows row to row+dst.Rows of t if the source has
	// them as codes of dst's format, and reports whether it has.
	ReadCodes(dst plane.Matrix, t *doc.Tensor, row int) (ok bool, err error)
}

// Encoder turns ops into records.
type Encoder struct {
	Source Source
	Stats  *Stats // nil: all inputs count the same
	// Threads is the number of goroutines that fit; 0: one per processor.
	Threads int
}

// blockValues is the number of values that one goroutine reads and fits at a
// time. It bounds memory: 4 bytes each, twice where a record is added to.
const blockValues = 1 << 16

// WorkBytes is what one goroutine of [Encoder.Encode] holds, unless a row is
// longer than a block.
const WorkBytes = 32 * blockValues

// Encode writes the record of op in encoding enc to dst, layout.Bytes long.
// A residual codes the error that the records below leave, skeleton first.
// A matrix that the source has as codes of just the wanted format is taken over
// bit for bit, whatever the fit: nothing is nearer to it.
//
// The first value that is NaN, infinite or too large for the encoding is an
// error that names tensor, row and column.
func (e *Encoder) Encode(ctx context.Context, dst []byte, op *doc.Op, enc *doc.Encoding, layout *doc.RecordLayout, below ...Record) error {
	if int64(len(dst)) != layout.Bytes {
		return fmt.Errorf("op %s: %d bytes for a record of %d", op.ID, len(dst), layout.Bytes)
	}
	if enc.Residual != (len(below) > 0) {
		return fmt.Errorf("op %s: encoding %s with %d records below", op.ID, enc.ID, len(below))
	}
	clear(dst)
	record := Record{layout, dst}
	for i := range layout.Tensors {
		l := &layout.Tensors[i]
		if err := e.encodeTensor(ctx, record, l, op, enc, below); err != nil {
			return fmt.Errorf("op %s, role %s: %w", op.ID, l.Role, err)
		}
	}
	return nil
}

func (e *Encoder) encodeTensor(ctx context.Context, record Record, l *doc.TensorLayout, op *doc.Op, enc *doc.Encoding, below []Record) error {
	t := tensor(op, l.Role)
	if t == nil {
		return errors.New("the profile's op has no such tensor")
	}
	if t.Rows != l.Rows || t.Cols != l.Cols {
		return fmt.Errorf("layout [%d, %d] of a tensor [%d, %d]", l.Rows, l.Cols, t.Rows, t.Cols)
	}
	dst, err := record.matrix(l)
	if err != nil {
		return err
	}
	var parts []plane.Matrix
	for _, r := range below {
		m, ok, err := r.Matrix(l.Role)
		if err != nil {
			return err
		}
		if ok && (m.Rows != t.Rows || m.Cols != t.Cols) {
			return fmt.Errorf("the record below holds [%d, %d] of a tensor [%d, %d]", m.Rows, m.Cols, t.Rows, t.Cols)
		}
		if ok {
			parts = append(parts, m)
		}
	}
	fitter := Fitter(dense{})
	if dst.Format.Coded() {
		if fitter, err = e.Stats.NewFitter(op, l.Role, enc, dst.Format, t.Cols); err != nil {
			return err
		}
	}
	err = e.fitRows(ctx, dst, t, parts, fitter)
	var value *ValueError
	if errors.As(err, &value) {
		return fmt.Errorf("tensor %q: %w", t.Source.Name, err)
	}
	return err
}

func tensor(op *doc.Op, role string) *doc.Tensor {
	for i := range op.Tensors {
		if op.Tensors[i].Role == role {
			return &op.Tensors[i]
		}
	}
	return nil
}

// fitRows fits blocks of rows in parallel. Of several errors it returns that
// of the lowest row, so that it does not depend on timing.
func (e *Encoder) fitRows(ctx context.Context, dst plane.Matrix, t *doc.Tensor, below []plane.Matrix, fitter Fitter) error {
	threads := e.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	next := blocks{rows: t.Rows, size: max(1, blockValues/t.Cols)}
	var workers sync.WaitGroup
	for range min(threads, (t.Rows+next.size-1)/next.size) {
		workers.Go(func() {
			b := block{source: e.Source, tensor: t, below: below, fitter: fitter}
			for {
				row, n := next.take()
				if n == 0 {
					return
				}
				err := ctx.Err()
				if err == nil {
					err = b.fit(dst, row, n)
				}
				if err != nil {
					next.fail(row, err)
					return
				}
			}
		})
	}
	workers.Wait()
	return next.err
}

// blocks hands out blocks of rows in ascending order until one fails.
type blocks struct {
	mu         sync.Mutex
	row        int
	rows, size int
	err        error
	errRow     int
}

func (b *blocks) take() (row, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, 0
	}
	row, n = b.row, min(b.size, b.rows-b.row)
	b.row += n
	return row, n
}

func (b *blocks) fail(row int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || row < b.errRow {
		b.err, b.errRow = err, row
	}
}

// block is what one goroutine needs to fit rows of a tensor.
type block struct {
	source Source
	tensor *doc.Tensor
	below  []plane.Matrix
	fitter Fitter
	w      []float32
	base   []float32
}

func (b *block) fit(dst plane.Matrix, row, n int) error {
	cols := b.tensor.Cols
	if b.w == nil {
		b.w = make([]float32, n*cols) // the first block is the largest
	}
	if source, ok := b.source.(CodeSource); ok && dst.Format.Coded() && len(b.below) == 0 {
		if ok, err := source.ReadCodes(rows(dst, row, n), b.tensor, row); ok || err != nil {
			return err
		}
	}
	w := b.w[:n*cols]
	if err := b.source.ReadRows(w, b.tensor, row, n); err != nil {
		return err
	}
	if i := firstNotFinite(w); i >= 0 {
		return &ValueError{Row: row + i/cols, Col: i % cols, Value: w[i], Reason: "is not a finite number"}
	}
	if len(b.below) > 0 {
		if b.base == nil {
			b.base = make([]float32, n*cols)
		}
		base := b.base[:len(w)]
		sumRows(base, row, b.below)
		for i, x := range base {
			w[i] -= x
		}
	}
	err := b.fitter.Fit(rows(dst, row, n), w)
	var value *ValueError
	if errors.As(err, &value) {
		value.Row += row
	}
	return err
}

// firstNotFinite is the index of the first NaN or infinity, -1 if none.
func firstNotFinite(w []float32) int {
	const exponent, one = 0x7f800000, 0x00800000
	var all uint32 // bit 31: some exponent is all ones, so that adding one carried
	for _, x := range w {
		all |= math.Float32bits(x)&exponent + one
	}
	if all>>31 == 0 {
		return -1
	}
	for i, x := range w {
		if !finite(x) {
			return i
		}
	}
	return -1
}

// dense stores values without codes.
type dense struct{}

func (dense) Fit(dst plane.Matrix, w []float32) error {
	if dst.Format.Bits == 32 {
		plane.EncodeFloat32(dst.Data, w)
		return nil
	}
	f := dst.Format.Scale
	for i, x := range w {
		b := f.Bits(x)
		if !finite(f.Value(b)) {
			return &ValueError{Row: i / dst.Cols, Col: i % dst.Cols, Value: x, Reason: "is too large for " + f.String()}
		}
		binary.LittleEndian.PutUint16(dst.Data[2*i:], b)
	}
	return nil
}
