package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"substrate/internal/jsonio"
	"substrate/pkg/plane"
)

// goldenTensors reads the raw tensors of testdata/mlx.safetensors, which
// scripts/make_quant_goldens.py made.
func goldenTensors(t *testing.T) (raw map[string][]byte, shapes map[string][]int) {
	t.Helper()
	b, err := os.ReadFile("testdata/mlx.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := jsonio.UnmarshalLoose("header", b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	raw, shapes = map[string][]byte{}, map[string][]int{}
	for name, h := range header {
		raw[name] = b[8+n:][h.Offsets[0]:h.Offsets[1]]
		shapes[name] = h.Shape
	}
	return raw, shapes
}

func newMatrix(rows, cols int, f plane.Format) plane.Matrix {
	return plane.Matrix{
		Rows: rows, Cols: cols, Format: f,
		Data:   make([]byte, f.DataBytes(rows, cols)),
		Scales: make([]byte, f.ScaleBytes(rows, cols)),
		Biases: make([]byte, f.ScaleBytes(rows, cols)),
	}
}

// minmax is MLX's quantizer bit for bit.
func TestMinMaxIsMLX(t *testing.T) {
	raw, shapes := goldenTensors(t)
	for _, scale := range []plane.Float{plane.BF16, plane.F16} {
		name := scale.String()
		shape := shapes[name+".w"]
		w := make([]float32, shape[0]*shape[1])
		scale.Decode(w, raw[name+".w"])
		for _, bits := range []int{2, 3, 4, 5, 6, 8} {
			for _, group := range []int{32, 64, 128} {
				m := newMatrix(shape[0], shape[1], plane.Format{Bits: bits, Group: group, Scale: scale})
				if err := (minMax{}).Fit(m, w); err != nil {
					t.Fatal(err)
				}
				prefix := fmt.Sprintf("%s.%d.%d.", name, bits, group)
				for part, got := range map[string][]byte{"codes": m.Data, "scales": m.Scales, "biases": m.Biases} {
					if want := raw[prefix+part]; !bytes.Equal(got, want) {
						at := 0
						for at < len(want) && at < len(got) && got[at] == want[at] {
							at++
						}
						t.Errorf("%s%s differ from MLX's at byte %d of %d", prefix, part, at, len(want))
					}
				}
			}
		}
	}
}
