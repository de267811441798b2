package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// A Fitter chooses the codes, scales and biases of one matrix. It is made for
// the matrix, with what is known of its inputs, and called for blocks of rows,
// by several goroutines at once.
type Fitter interface {
	// Fit codes w, row-major [dst.Rows, dst.Cols] and finite, into dst. A
	// *ValueError counts rows from the block's first.
	Fit(dst plane.Matrix, w []float32) error
}

// Versions of the fits, as in Encoding.FitVersion. A change of the bytes that
// a fit makes is a new version.
const (
	MinMaxVersion = 1
	LSQVersion    = 1
	GPTQVersion   = 1
)

// FitVersion is the version of a fit by its name; ok is false if there is none.
func FitVersion(fit string) (version int, ok bool) {
	switch fit {
	case "minmax":
		return MinMaxVersion, true
	case "lsq":
		return LSQVersion, true
	case "gptq":
		return GPTQVersion, true
	}
	return 0, false
}

// checkFit returns an error unless this version makes an encoding's codes.
func checkFit(e *doc.Encoding) error {
	version, ok := FitVersion(e.Fit)
	if !ok {
		return fmt.Errorf("encoding %s: no fit %q, want minmax, lsq or gptq", e.ID, e.Fit)
	}
	if e.FitVersion != version {
		return fmt.Errorf("encoding %s: this version fits %s%d", e.ID, e.Fit, version)
	}
	return nil
}

// NewFitter makes the fitter of a matrix of op in format f, with what s knows
// of the matrix's inputs; without any, all inputs count the same.
func (s *Stats) NewFitter(op *doc.Op, role string, e *doc.Encoding, f plane.Format, cols int) (Fitter, error) {
	if err := checkFit(e); err != nil {
		return nil, err
	}
	if e.Fit == "minmax" {
		return minMax{}, nil
	}
	if e.Fit == "gptq" {
		c, err := s.curvature(op, role, cols, f.Group)
		if err != nil {
			return nil, err
		}
		if c != nil {
			return newGPTQ(f, c), nil
		}
	}
	moments, err := s.Moments(op.ID, role, cols)
	if err != nil {
		return nil, err
	}
	return newLSQ(f, moments), nil
}

// ValueError is a value that cannot be stored.
type ValueError struct {
	Row, Col int
	Value    float32
	Reason   string
}

// ExitCode is that of an input that cannot be used.
func (e *ValueError) ExitCode() int { return 3 }

func (e *ValueError) Error() string {
	return fmt.Sprintf("value %g at [%d, %d] %s", e.Value, e.Row, e.Col, e.Reason)
}

// tooLarge names the first value of a group whose scale or bias overflowed.
func tooLarge(f plane.Float, row, col int, w []float32) *ValueError {
	e := &ValueError{Row: row, Col: col, Reason: fmt.Sprintf("is too large for scales in %s", f)}
	for i, x := range w {
		if a := float32(math.Abs(float64(x))); a > float32(math.Abs(float64(e.Value))) {
			e.Col, e.Value = col+i, x
		}
	}
	return e
}

// fitGroups runs fit over all groups of dst.
func fitGroups(dst plane.Matrix, w []float32, fit func(codes []uint8, w []float32, col int) (scale, bias uint16)) error {
	f := dst.Format
	codes := make([]uint8, f.Group)
	codeBytes := f.Group * f.Bits / 8
	top := float32(int(1)<<f.Bits - 1)
	for g := 0; g*f.Group < len(w); g++ {
		at := g * f.Group
		values := w[at : at+f.Group]
		row, col := at/dst.Cols, at%dst.Cols
		scale, bias := fit(codes, values, col)
		if s, b := f.Scale.Value(scale), f.Scale.Value(bias); !finite(s) || !finite(b) || !finite(float32(s*top)+b) {
			return tooLarge(f.Scale, row, col, values)
		}
		plane.Pack(dst.Data[g*codeBytes:], codes, f.Bits)
		binary.LittleEndian.PutUint16(dst.Scales[2*g:], scale)
		binary.LittleEndian.PutUint16(dst.Biases[2*g:], bias)
	}
	return nil
}

func finite(x float32) bool { return x-x == 0 }
