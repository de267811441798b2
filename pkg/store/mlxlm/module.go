package mlxlm

import (
	"fmt"
	"strings"

	"substrate/pkg/doc"
	"substrate/pkg/model"
)

// module is a matrix or vector of mlx-lm's: a tensor, or three if it is coded.
type module struct {
	path    string // "model.layers.0.self_attn.q_proj"; of a vector that is no module, the tensor's name
	suffix  string // ".weight", ".bias" or nothing
	dtype   string // as in a layout
	bits    int    // of codes: the most of its experts
	group   int    // the least
	scale   string
	experts int // 0: no experts
	rows    int
	cols    int
	vector  bool
	widened bool
	tensors []tensor // codes or values; of codes also scales, biases
}

// tensor is an entry of the safetensors file.
type tensor struct {
	name   string
	dtype  string // as safetensors has it
	shape  []int64
	offset int64 // in the data
	bytes  int64
}

const weightSuffix = ".weight"

func (m *module) coded() bool { return m.dtype == codesType }

// codesType is the dtype of coded tensors in a layout.
const codesType = "codes"

// add brings a tensor of an op into the module that it belongs to.
func (e *export) add(modules map[string]*module, op *doc.Op, t *doc.TensorLayout) (part, error) {
	source := model.MLXSource(op, t.Role)
	path, weight := strings.CutSuffix(source.Name, weightSuffix)
	m := modules[source.Name]
	if m == nil {
		m = &module{
			path: path, dtype: t.DType, bits: t.Bits, group: t.Group, scale: t.Scale, rows: t.Rows, cols: t.Cols,
			vector: t.Rows == 1 && t.DType != codesType,
		}
		if weight {
			m.suffix = weightSuffix
		}
		if op.Expert >= 0 {
			m.experts = e.store.Manifest().Profile.Architecture.Experts
		}
		modules[source.Name] = m
		e.modules = append(e.modules, m)
	}
	if m.dtype != t.DType || m.rows != t.Rows || m.cols != t.Cols || m.scale != t.Scale {
		return part{}, &UnfitError{e.store.Path(), fmt.Sprintf("experts of %s are %s [%d, %d] and %s [%d, %d], mlx-lm has one tensor for all",
			m.path, m.dtype, m.rows, m.cols, t.DType, t.Rows, t.Cols)}
	}
	if m.coded() && (m.bits != t.Bits || m.group != t.Group) {
		m.bits, m.group, m.widened = max(m.bits, t.Bits), min(m.group, t.Group), true
	}
	return part{m, source.Index}, nil
}

// place gives each module its tensors and these their places in the file.
func (e *export) place() {
	for _, m := range e.modules {
		rows := []int64{int64(m.rows)}
		switch {
		case m.vector:
			rows = nil
		case m.experts > 0:
			rows = []int64{int64(m.experts), int64(m.rows)}
		}
		add := func(name, dtype string, cols, size int) {
			t := tensor{name: name, dtype: dtype, shape: append(rows[:len(rows):len(rows)], int64(cols)), offset: e.bytes, bytes: int64(size)}
			for _, n := range t.shape {
				t.bytes *= n
			}
			e.bytes += t.bytes
			m.tensors = append(m.tensors, t)
		}
		if !m.coded() {
			add(m.path+m.suffix, safetensorsType(m.dtype), m.cols, valueBytes(m.dtype))
			continue
		}
		add(m.path+weightSuffix, "U32", m.cols*m.bits/32, 4)
		add(m.path+".scales", safetensorsType(m.scale), m.cols/m.group, 2)
		add(m.path+".biases", safetensorsType(m.scale), m.cols/m.group, 2)
	}
}

func safetensorsType(dtype string) string { return strings.ToUpper(dtype) }

// valueBytes is the size of a dense value in bytes.
func valueBytes(dtype string) int {
	if dtype == "f32" {
		return 4
	}
	return 2
}
