package model

import (
	"fmt"
	"slices"
	"strings"
)

// tensorInfo is one tensor of a checkpoint as its header gives it.
type tensorInfo struct {
	dtype    dtype
	typeName string  // the file's own name of the type, for messages
	shape    []int64 // outermost first, as Hugging Face gives it
	file     int     // index into Model.files
	offset   int64   // of the first byte in the file
	bytes    int64
	planes   *planes // of codes whose scales are elsewhere; else nil
}

// table holds the tensors of a checkpoint by name.
type table map[string]tensorInfo

// names returns the names in order.
func (t table) names() []string {
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// formatShape writes a shape as "[576, 1536]".
func formatShape(shape []int64) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ")
}

// elements multiplies a shape; ok is false if the product leaves int64 or a
// dimension is negative.
func elements(shape []int64) (n int64, ok bool) {
	n = 1
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d != 0 && n > (1<<62)/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}
