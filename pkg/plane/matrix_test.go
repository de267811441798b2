package plane

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// random returns a matrix with random codes, and its codes.
func random(rng *rand.Rand, rows, cols int, f Format) (*Matrix, []uint8) {
	m := &Matrix{Rows: rows, Cols: cols, Format: f}
	m.Data = make([]byte, f.DataBytes(rows, cols))
	if !f.Coded() {
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		if f.Bits == 32 {
			EncodeFloat32(m.Data, values)
		} else {
			f.Scale.Encode(m.Data, values)
		}
		return m, nil
	}
	codes := make([]uint8, rows*cols)
	for i := range codes {
		codes[i] = uint8(rng.IntN(1 << f.Bits))
	}
	Pack(m.Data, codes, f.Bits)
	values := make([]float32, rows*cols/f.Group)
	m.Scales = make([]byte, f.ScaleBytes(rows, cols))
	m.Biases = make([]byte, f.ScaleBytes(rows, cols))
	for _, dst := range [][]byte{m.Scales, m.Biases} {
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		f.Scale.Encode(dst, values)
	}
	return m, codes
}

// Row against w = scale*q + bias, value by value.
func TestDequantize(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			for _, scale := range []Float{BF16, F16} {
				f := Format{Bits: bits, Group: group, Scale: scale}
				const rows, cols = 3, 256
				m, codes := random(rng, rows, cols, f)
				if err := m.Check(); err != nil {
					t.Fatal(err)
				}
				got := make([]float32, rows*cols)
				m.Dequantize(got)
				for i, q := range codes {
					s := scale.Value(binary.LittleEndian.Uint16(m.Scales[i/group*2:]))
					b := scale.Value(binary.LittleEndian.Uint16(m.Biases[i/group*2:]))
					if want := float32(float64(s)*float64(q) + float64(b)); got[i] != want {
						t.Fatalf("%+v: value %d: got %v, want %v", f, i, got[i], want)
					}
				}
			}
		}
	}
}

func TestDequantizeDense(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, f := range []Format{{Bits: 32}, {Bits: 16, Scale: BF16}, {Bits: 16, Scale: F16}} {
		m, _ := random(rng, 2, 5, f)
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		values := make([]float32, 10)
		m.Dequantize(values)
		again := make([]byte, len(m.Data))
		if f.Bits == 32 {
			EncodeFloat32(again, values)
		} else {
			f.Scale.Encode(again, values)
		}
		if !slices.Equal(again, m.Data) {
			t.Errorf("%+v: values do not encode back", f)
		}
	}
}

func TestMatrixCheck(t *testing.T) {
	good := func() *Matrix {
		m, _ := random(rand.New(rand.NewPCG(7, 8)), 2, 128, Format{Bits: 3, Group: 64})
		return m
	}
	for _, c := range []struct {
		name   string
		change func(*Matrix)
		want   string
	}{
		{"rows", func(m *Matrix) { m.Rows = 0 }, "not the shape"},
		{"overflow", func(m *Matrix) { m.Rows, m.Cols = 1<<40, 1<<40 }, "not the shape"},
		{"bits", func(m *Matrix) { m.Format.Bits = 7 }, "7 bits"},
		{"group", func(m *Matrix) { m.Format.Group = 48 }, "group of 48"},
		{"dense group", func(m *Matrix) { m.Format.Bits = 16 }, "have no groups"},
		{"scale type", func(m *Matrix) { m.Format.Scale = 9 }, "type 9"},
		{"columns", func(m *Matrix) { m.Cols = 96 }, "whole groups"},
		{"data", func(m *Matrix) { m.Data = m.Data[1:] }, "data of 95 bytes"},
		{"scales", func(m *Matrix) { m.Scales = m.Scales[1:] }, "scales of 7"},
	} {
		m := good()
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		c.change(m)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

// Codes of any width come back; bytes behind them stay.
func FuzzPack(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(3))
	f.Add(make([]byte, 64), uint8(5))
	f.Fuzz(func(t *testing.T, codes []byte, width uint8) {
		bits := []int{2, 3, 4, 5, 6, 8}[width%6]
		codes = codes[:len(codes)/8*8]
		for i := range codes {
			codes[i] &= 1<<bits - 1
		}
		size := len(codes) * bits / 8
		packed := make([]byte, size+1)
		packed[size] = 0xa5
		Pack(packed, codes, bits)
		if packed[size] != 0xa5 {
			t.Fatal("wrote behind the last code")
		}
		back := make([]uint8, len(codes))
		Unpack(back, packed[:size], bits)
		if !slices.Equal(back, codes) {
			t.Fatalf("%d bits: %v came back as %v", bits, codes, back)
		}
	})
}
