package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"substrate/pkg/doc"
)

// bind gives every tensor of the profile the type that the checkpoint has for
// it, and the profile its reference. A tensor that is missing, of another
// shape or type, or that no op wants is an error that lists them all.
//
// ignored says which tensors beside the profile's may be there.
func bind(file string, p *doc.Profile, t table, ignored func(name string) bool) error {
	var faults mismatch
	wanted := make(map[string]bool, len(t))
	counts := map[string]int64{} // weights of matrices in the blocks, by reference
	for i := range p.Ops {
		op := &p.Ops[i]
		for j := range op.Tensors {
			tensor := &op.Tensors[j]
			name := tensor.Source.Name
			info, ok := t[name]
			again := wanted[name]
			wanted[name] = true
			if !ok {
				if !again {
					faults.add("missing %s %s", name, formatShape(wantShape(p, op, tensor)))
				}
				continue
			}
			if !fits(info.shape, wantShape(p, op, tensor)) {
				if !again {
					faults.add("%s has shape %s, want %s", name, formatShape(info.shape), formatShape(wantShape(p, op, tensor)))
				}
				continue
			}
			if info.dtype == dtypeNone {
				if !again {
					faults.add("%s has type %s, which is not supported", name, info.typeName)
				}
				continue
			}
			tensor.DType = info.dtype.String()
			if op.Layer >= 0 && !tensor.Keep {
				counts[info.reference()] += int64(tensor.Rows) * int64(tensor.Cols)
			}
		}
	}
	for _, name := range t.names() {
		if !wanted[name] && !ignored(name) {
			faults.add("unexpected %s %s", name, formatShape(t[name].shape))
		}
	}
	p.Reference = majority(counts)
	return faults.err(file, p.Family)
}

// wantShape is the shape that a tensor must have in the file.
func wantShape(p *doc.Profile, op *doc.Op, t *doc.Tensor) []int64 {
	shape := []int64{int64(t.Rows), int64(t.Cols)}
	vector := t.Rows == 1 && t.Keep && !(t.Role == doc.RoleWeight && op.Kind != doc.KindNorm)
	if part := t.Source.Part; part != nil {
		shape = []int64{int64(part.Rows), int64(part.Cols)}
		switch {
		case part.InputsFirst:
			shape[0], shape[1] = shape[1], shape[0]
		case vector:
			shape = shape[:1]
		}
	} else if vector {
		shape = shape[1:]
	}
	if t.Source.Index >= 0 {
		shape = append([]int64{int64(p.Architecture.Experts)}, shape...)
	}
	return shape
}

// fits compares shapes; leading dimensions of 1 do not count, since GGUF does
// not keep them.
func fits(got, want []int64) bool {
	trim := func(shape []int64) []int64 {
		for len(shape) > 1 && shape[0] == 1 {
			shape = shape[1:]
		}
		return shape
	}
	return slices.Equal(trim(got), trim(want))
}

// majority is the name with the highest count, the first of equal ones, among
// those of quantized types or of the others, whichever are more.
func majority(counts map[string]int64) string {
	quantized := func(name string) bool { return strings.HasPrefix(name, dequantizedPrefix) }
	var all [2]int64
	for name, n := range counts {
		if quantized(name) {
			all[1] += n
		} else {
			all[0] += n
		}
	}
	best := bf16.reference()
	var most int64
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if quantized(name) == (all[1] > all[0]) && counts[name] > most {
			best, most = name, counts[name]
		}
	}
	return best
}

// maxFaults bounds the lines of one message.
const maxFaults = 12

// mismatch collects what does not fit between tensors and architecture.
type mismatch struct {
	lines []string
	more  int
}

func (m *mismatch) add(format string, args ...any) {
	if len(m.lines) == maxFaults {
		m.more++
		return
	}
	m.lines = append(m.lines, fmt.Sprintf(format, args...))
}

func (m *mismatch) err(file, family string) error {
	if len(m.lines) == 0 {
		return nil
	}
	reason := "tensors do not match the architecture " + family + ": " + strings.Join(m.lines, "; ")
	if m.more > 0 {
		reason += fmt.Sprintf("; and %d more", m.more)
	}
	return &Error{File: file, Offset: -1, Reason: reason}
}
