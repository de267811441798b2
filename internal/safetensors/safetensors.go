// Package safetensors writes the headers of safetensors files.
// Format: https://github.com/huggingface/safetensors
package safetensors

import (
	"encoding/binary"

	"substrate/internal/jsonio"
)

// Tensor is an entry of a header: a tensor's type ("F32", "BF16", "U32", ...),
// shape and place.
type Tensor struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // from the header's end
}

// Header is the start of a file that holds tensors, by name: the header's
// length, the header, and spaces behind it, so that the data begins at a
// multiple of 8. format is what the file's metadata calls its format.
func Header(format string, tensors map[string]Tensor) ([]byte, error) {
	entries := map[string]any{"__metadata__": map[string]string{"format": format}}
	for name, t := range tensors {
		entries[name] = t
	}
	text, err := jsonio.MarshalLine(entries)
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}
