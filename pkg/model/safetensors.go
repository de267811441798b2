package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"substrate/internal/jsonio"
)

// maxSafetensorsHeader is the limit of the format's own reader.
const maxSafetensorsHeader = 100_000_000

// safetensorsHeader reads and checks the header of f, the index-th file: the
// tensors in the order of their data, and the text of the header.
//
// Format: 8 bytes of length N, N bytes of JSON, data. Offsets count from the
// data's start; tensors cover it without a hole.
func safetensorsHeader(f *file, index int) (table, []byte, error) {
	if f.size < 8 {
		return nil, nil, &Error{File: f.name, Offset: 0, Damaged: true, Reason: fmt.Sprintf("%d bytes are too few for a safetensors file", f.size)}
	}
	var head [8]byte
	if err := f.readAt(head[:], 0); err != nil {
		return nil, nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > maxSafetensorsHeader || int64(n) > f.size-8 {
		return nil, nil, &Error{File: f.name, Offset: 0, Damaged: n <= maxSafetensorsHeader,
			Reason: fmt.Sprintf("header of %d bytes in a file of %d: not a safetensors file, or cut off", n, f.size)}
	}
	text := make([]byte, n)
	if err := f.readAt(text, 8); err != nil {
		return nil, nil, err
	}
	t, err := parseSafetensors(f.name, text, f.size-8-int64(n))
	if err != nil {
		return nil, nil, err
	}
	for name, info := range t {
		info.file = index
		info.offset += 8 + int64(n)
		t[name] = info
	}
	return t, text, nil
}

// parseSafetensors reads the JSON of a header whose data has dataBytes.
// Offsets count from the start of the data.
func parseSafetensors(file string, text []byte, dataBytes int64) (table, error) {
	members, err := jsonio.Members(file, text)
	if err != nil {
		return nil, err
	}
	t := make(table, len(members))
	names := make([]string, 0, len(members))
	for _, m := range members {
		if m.Name == "__metadata__" {
			continue
		}
		info, err := safetensorsInfo(file, m, dataBytes)
		if err != nil {
			return nil, err
		}
		t[m.Name] = info
		names = append(names, m.Name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(t[a].offset, t[b].offset), cmp.Compare(t[a].bytes, t[b].bytes), cmp.Compare(a, b))
	})
	var end int64
	for _, name := range names {
		if at := t[name].offset; at != end {
			return nil, &Error{File: file, Offset: -1, Key: "tensor " + name, Reason: fmt.Sprintf("data starts at %d where the one before ends at %d: overlap or hole", at, end)}
		}
		end += t[name].bytes
	}
	if end != dataBytes {
		return nil, &Error{File: file, Offset: -1, Damaged: true,
			Reason: fmt.Sprintf("tensors have %d bytes of data, the file %d", end, dataBytes)}
	}
	return t, nil
}

func safetensorsInfo(file string, m jsonio.Member, dataBytes int64) (tensorInfo, error) {
	var none tensorInfo
	fault := func(format string, args ...any) error {
		return &Error{File: file, Offset: -1, Key: "tensor " + m.Name, Reason: fmt.Sprintf(format, args...)}
	}
	var raw struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := jsonio.UnmarshalLoose(file, m.Value, &raw); err != nil {
		return none, fault("%v", err)
	}
	bits := safetensorsBits(raw.DType)
	if bits == 0 {
		return none, fault("unknown dtype %q", raw.DType)
	}
	n, ok := elements(raw.Shape)
	if !ok || n > (1<<62)/bits {
		return none, fault("shape %s is impossible", formatShape(raw.Shape))
	}
	if n*bits%8 != 0 {
		return none, fault("shape %s of %s is not whole bytes", formatShape(raw.Shape), raw.DType)
	}
	if len(raw.Offsets) != 2 {
		return none, fault("data_offsets has %d numbers, want 2", len(raw.Offsets))
	}
	begin, end := raw.Offsets[0], raw.Offsets[1]
	if begin < 0 || end < begin {
		return none, fault("data_offsets [%d, %d] are impossible", begin, end)
	}
	if end > dataBytes {
		return none, &Error{File: file, Offset: -1, Key: "tensor " + m.Name, Damaged: true,
			Reason: fmt.Sprintf("its data ends at %d, the file's at %d: cut off", end, dataBytes)}
	}
	if end-begin != n*bits/8 {
		return none, fault("%d bytes of data, shape %s of %s needs %d", end-begin, formatShape(raw.Shape), raw.DType, n*bits/8)
	}
	info := tensorInfo{typeName: raw.DType, shape: raw.Shape, offset: begin, bytes: end - begin}
	switch raw.DType {
	case "F32":
		info.dtype = f32
	case "F16":
		info.dtype = f16
	case "BF16":
		info.dtype = bf16
	}
	return info, nil
}

// safetensorsBits is the size of a value of each type that the format knows,
// 0 for others.
func safetensorsBits(dtype string) int64 {
	switch dtype {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case "U16", "I16", "F16", "BF16":
		return 16
	case "U32", "I32", "F32":
		return 32
	case "U64", "I64", "F64", "C64":
		return 64
	}
	return 0
}
