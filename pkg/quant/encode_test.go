package quant_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/quant"
)

// memory is a source in memory, by tensor name.
type memory map[string][]float32

func (s memory) ReadRows(dst []float32, t *doc.Tensor, row, rows int) error {
	copy(dst, s[t.Source.Name][row*t.Cols:(row+rows)*t.Cols])
	return nil
}

func testOp() (*doc.Op, memory) {
	op := &doc.Op{ID: "block_0.attn", Kind: doc.KindAttention, Tensors: []doc.Tensor{
		{Role: doc.RoleNorm, Rows: 1, Cols: 128, Keep: true, DType: "bf16"},
		{Role: doc.RoleQ, Rows: 300, Cols: 128, DType: "bf16"},
		{Role: doc.RoleO, Rows: 128, Cols: 320, DType: "bf16"}, // 320 is no multiple of 128
	}}
	rng := rand.New(rand.NewPCG(3, 4))
	source := memory{}
	for i := range op.Tensors {
		t := &op.Tensors[i]
		t.Source = doc.Source{Name: "w." + t.Role, Index: -1}
		w := make([]float32, t.Rows*t.Cols)
		for i := range w {
			w[i] = float32(rng.NormFloat64()) * 0.02
		}
		source[t.Source.Name] = w
	}
	return op, source
}

func encoding(bits, group int, fit string, residual bool) *doc.Encoding {
	e := &doc.Encoding{Bits: bits, Group: group, Scale: "bf16", Fit: fit, FitVersion: 1, Residual: residual}
	if bits >= 16 {
		e.Fit, e.FitVersion = "none", 0
	}
	e.ID = doc.EncodingID(e)
	return e
}

func encode(t *testing.T, e *quant.Encoder, op *doc.Op, enc *doc.Encoding, below ...quant.Record) quant.Record {
	t.Helper()
	layout, err := footprint.Layout(op, enc)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, layout.Bytes)
	if err := e.Encode(context.Background(), dst, op, enc, &layout, below...); err != nil {
		t.Fatal(err)
	}
	return quant.Record{Layout: &layout, Bytes: dst}
}

// levelError is the relative squared error of a role at a level.
func levelError(t *testing.T, source memory, op *doc.Op, role string, parts ...quant.Record) float64 {
	t.Helper()
	for _, tensor := range op.Tensors {
		if tensor.Role != role {
			continue
		}
		got := make([]float32, tensor.Rows*tensor.Cols)
		if err := quant.Dequantize(got, role, parts...); err != nil {
			t.Fatal(err)
		}
		var num, den float64
		for i, w := range source[tensor.Source.Name] {
			num += math.Pow(float64(w)-float64(got[i]), 2)
			den += float64(w) * float64(w)
		}
		return num / den
	}
	t.Fatalf("no role %s", role)
	return 0
}

func TestEncodeLevels(t *testing.T) {
	op, source := testOp()
	e := &quant.Encoder{Source: source}
	skeleton := encode(t, e, op, encoding(2, 64, "lsq", false))
	residual := encode(t, e, op, encoding(3, 64, "lsq", true), skeleton)
	second := encode(t, e, op, encoding(2, 64, "lsq", true), skeleton, residual)
	for _, role := range []string{doc.RoleQ, doc.RoleO} {
		one := levelError(t, source, op, role, skeleton)
		two := levelError(t, source, op, role, skeleton, residual)
		three := levelError(t, source, op, role, skeleton, residual, second)
		t.Logf("%s: %.5f, %.5f, %.6f", role, one, two, three)
		if two > one/15 || three > two/5 {
			t.Errorf("%s: relative squared errors %g, %g, %g with 0, 1, 2 residuals", role, one, two, three)
		}
	}
	if got := levelError(t, source, op, doc.RoleNorm, skeleton, residual); got != 0 {
		t.Errorf("norm, stored dense: error %g", got)
	}

	dense := encode(t, e, op, encoding(16, 0, "none", false))
	if got := levelError(t, source, op, doc.RoleQ, dense); got > 1e-5 {
		t.Errorf("bf16: relative squared error %g", got)
	}
	if got := levelError(t, source, op, doc.RoleQ, encode(t, e, op, encoding(32, 0, "none", false))); got != 0 {
		t.Errorf("f32: relative squared error %g", got)
	}
}

// The bytes do not depend on the number of threads.
func TestEncodeThreads(t *testing.T) {
	op, source := testOp()
	var want []byte
	for _, threads := range []int{1, 2, 7} {
		got := encode(t, &quant.Encoder{Source: source, Threads: threads}, op, encoding(3, 32, "lsq", false)).Bytes
		if want == nil {
			want = got
		} else if !bytes.Equal(got, want) {
			t.Errorf("%d threads give other bytes than 1", threads)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for name, c := range map[string]struct {
		value float32
		scale string
		bits  int
		want  string
	}{
		"NaN":          {float32(math.NaN()), "bf16", 4, `op block_0.attn, role q: tensor "w.q": value NaN at [299, 5] is not a finite number`},
		"infinity":     {float32(math.Inf(-1)), "bf16", 4, "value -Inf at [299, 5] is not a finite number"},
		"f16 scales":   {1e7, "f16", 4, "value 1e+07 at [299, 5] is too large for scales in f16"},
		"f16 dense":    {1e5, "f16", 16, "value 100000 at [299, 5] is too large for f16"},
		"bf16 biggest": {math.MaxFloat32, "bf16", 8, "value 3.4028235e+38 at [299, 5] is too large for scales in bf16"},
	} {
		t.Run(name, func(t *testing.T) {
			op, source := testOp()
			source["w.q"][299*128+5] = c.value
			fits := []string{"lsq", "minmax"}
			if c.bits >= 16 {
				fits = []string{"none"}
			}
			for _, fit := range fits {
				enc := encoding(c.bits, 64, fit, false)
				if c.bits >= 16 {
					enc.Group = 0
				}
				enc.Scale = c.scale
				layout, err := footprint.Layout(op, enc)
				if err != nil {
					t.Fatal(err)
				}
				err = (&quant.Encoder{Source: source}).Encode(context.Background(), make([]byte, layout.Bytes), op, enc, &layout)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: error %v, want %q", fit, err, c.want)
				}
			}
		})
	}
}

func TestEncodeStops(t *testing.T) {
	op, source := testOp()
	enc := encoding(4, 64, "lsq", false)
	layout, err := footprint.Layout(op, enc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := (&quant.Encoder{Source: source}).Encode(ctx, make([]byte, layout.Bytes), op, enc, &layout); err == nil {
		t.Error("a cancelled encoder returned no error")
	}
}
