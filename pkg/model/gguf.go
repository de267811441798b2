package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a GGUF header, beside those that the file's size sets. The format
// has limits for key and tensor names only.
const (
	maxGGUFName    = 1 << 16
	maxGGUFText    = 4 << 20 // of a string that is kept, such as a chat template
	maxGGUFTensors = 1 << 20
	maxGGUFKeys    = 1 << 16
	maxGGUFArray   = 1 << 24 // elements of an array of strings or arrays
	maxGGUFNesting = 4
	maxGGUFDims    = 4
)

// Types of metadata values, from the GGUF specification.
const (
	ggufUint8 = iota
	ggufInt8
	ggufUint16
	ggufInt16
	ggufUint32
	ggufInt32
	ggufFloat32
	ggufBool
	ggufString
	ggufArray
	ggufUint64
	ggufInt64
	ggufFloat64
)

// ggufValue is one metadata value. Arrays are left in the file.
type ggufValue struct {
	kind   uint32
	bits   uint64 // of a number, sign-extended, or of a float64
	text   string
	array  uint32 // kind of an array's elements
	count  int64  // of an array
	offset int64  // of an array's first element
}

// ggufHeader is what stands before the tensors' data.
type ggufHeader struct {
	file      string
	metadata  map[string]ggufValue
	tensors   table
	digest    string // of the whole header
	tokenizer string // digest of the tokenizer's metadata
}

// ggufReader walks through the header once, through a small window.
type ggufReader struct {
	f      *file
	window []byte // unread bytes at pos
	buf    []byte
	pos    int64
	header hash.Hash
	vocab  hash.Hash // not nil while inside the tokenizer's metadata
	err    error     // the first, final
}

func newGGUFReader(f *file, pos int64) *ggufReader {
	return &ggufReader{f: f, pos: pos, buf: make([]byte, 64<<10), header: sha256.New()}
}

func (r *ggufReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &Error{File: r.f.name, Offset: r.pos, Reason: fmt.Sprintf(format, args...)}
	}
}

// cutOff fails because what the header announces is not in the file.
func (r *ggufReader) cutOff(n int64, what string) {
	if r.err == nil {
		r.err = &Error{File: r.f.name, Offset: r.pos, Damaged: true,
			Reason: fmt.Sprintf("%d %s announced, %d bytes are left in the file", n, what, r.remaining())}
	}
}

// remaining is the number of bytes up to the file's end.
func (r *ggufReader) remaining() int64 { return r.f.size - r.pos }

// next returns the next n bytes, valid until the next call; zeros after an
// error. n is at most the length of buf.
func (r *ggufReader) next(n int) []byte {
	if int64(n) > r.remaining() {
		r.cutOff(int64(n), "bytes")
	}
	if r.err == nil && len(r.window) < n {
		size := min(int64(len(r.buf)), r.remaining())
		if err := r.f.readAt(r.buf[:size], r.pos); err != nil {
			r.err = err
		}
		r.window = r.buf[:size]
	}
	if r.err != nil {
		clear(r.buf[:n])
		return r.buf[:n]
	}
	b := r.window[:n]
	r.window = r.window[n:]
	r.pos += int64(n)
	r.header.Write(b)
	if r.vocab != nil {
		r.vocab.Write(b)
	}
	return b
}

// skip goes over n bytes; they are part of the digests all the same.
func (r *ggufReader) skip(n int64) {
	if n > r.remaining() {
		r.cutOff(n, "bytes")
	}
	for n > 0 && r.err == nil {
		n -= int64(len(r.next(int(min(n, int64(len(r.buf)))))))
	}
}

func (r *ggufReader) uint32() uint32 { return binary.LittleEndian.Uint32(r.next(4)) }
func (r *ggufReader) uint64() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }

// length reads a count of things of which each takes at least size bytes.
func (r *ggufReader) length(what string, size, limit int64) int64 {
	n := r.uint64()
	switch {
	case n > uint64(limit):
		r.fail("%d %s: at most %d are allowed", n, what, limit)
	case int64(n) > r.remaining()/size:
		r.cutOff(int64(n), what)
	default:
		return int64(n)
	}
	return 0
}

// text reads a string of at most limit bytes.
func (r *ggufReader) text(what string, limit int64) string {
	n := r.length("bytes of "+what, 1, limit)
	if n <= int64(len(r.buf)) {
		return string(r.next(int(n)))
	}
	var b strings.Builder
	b.Grow(int(n))
	for n > 0 && r.err == nil {
		part := r.next(int(min(n, int64(len(r.buf)))))
		b.Write(part)
		n -= int64(len(part))
	}
	return b.String()
}

// readGGUF reads and checks everything before the data of a GGUF file of
// version 2 or 3.
func readGGUF(f *file) (*ggufHeader, error) {
	r := newGGUFReader(f, 0)
	if f.size < 24 || string(r.next(4)) != "GGUF" {
		return nil, &Error{File: f.name, Offset: 0, Reason: "not a GGUF file, and not a Hugging Face folder"}
	}
	switch version := r.uint32(); version {
	case 2, 3:
	default:
		return nil, &Error{File: f.name, Offset: 4, Reason: fmt.Sprintf("GGUF version %d is not supported, only 2 and 3 in little endian", version)}
	}
	// A tensor has a name, a count of dimensions, a type and an offset.
	tensors := r.length("tensors", 8+4+4+8, maxGGUFTensors)
	keys := r.length("metadata keys", 8+4+1, maxGGUFKeys)
	if r.err != nil {
		return nil, r.err
	}
	h := &ggufHeader{file: f.name, metadata: map[string]ggufValue{}}
	vocab := sha256.New()
	for range keys {
		key := r.text("a metadata key", maxGGUFName)
		if _, twice := h.metadata[key]; twice {
			r.fail("metadata key %q occurs twice", key)
		}
		if strings.HasPrefix(key, "tokenizer.") {
			digestPart(vocab, key, nil)
			r.vocab = vocab
		}
		h.metadata[key] = r.value(r.uint32(), 0)
		r.vocab = nil
		if r.err != nil {
			return nil, r.err
		}
	}
	h.tensors = make(table, min(tensors, 1<<12))
	for range tensors {
		r.tensor(h.tensors)
		if r.err != nil {
			return nil, r.err
		}
	}
	h.digest = hex.EncodeToString(r.header.Sum(nil))
	h.tokenizer = hex.EncodeToString(vocab.Sum(nil))
	return h, h.placeData(f, r.pos)
}

// value reads a metadata value of a kind.
func (r *ggufReader) value(kind uint32, depth int) ggufValue {
	v := ggufValue{kind: kind}
	switch kind {
	case ggufUint8, ggufBool:
		v.bits = uint64(r.next(1)[0])
	case ggufInt8:
		v.bits = uint64(int64(int8(r.next(1)[0])))
	case ggufUint16:
		v.bits = uint64(binary.LittleEndian.Uint16(r.next(2)))
	case ggufInt16:
		v.bits = uint64(int64(int16(binary.LittleEndian.Uint16(r.next(2)))))
	case ggufUint32:
		v.bits = uint64(r.uint32())
	case ggufInt32:
		v.bits = uint64(int64(int32(r.uint32())))
	case ggufFloat32:
		v.bits = math.Float64bits(shortest(math.Float32frombits(r.uint32())))
	case ggufUint64, ggufInt64, ggufFloat64:
		v.bits = r.uint64()
	case ggufString:
		v.text = r.text("a metadata string", maxGGUFText)
	case ggufArray:
		r.array(&v, depth)
	default:
		r.fail("metadata type %d is unknown", kind)
	}
	return v
}

// shortest is the float64 of the shortest decimal that rounds to x: 1e-5, as
// config.json has it, and not 0.000009999999747.
func shortest(x float32) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil {
		return float64(x)
	}
	return y
}

// ggufSize is the size of a metadata number, 0 for other kinds.
func ggufSize(kind uint32) int64 {
	switch kind {
	case ggufUint8, ggufInt8, ggufBool:
		return 1
	case ggufUint16, ggufInt16:
		return 2
	case ggufUint32, ggufInt32, ggufFloat32:
		return 4
	case ggufUint64, ggufInt64, ggufFloat64:
		return 8
	}
	return 0
}

// array goes over the elements of an array and notes where they are.
func (r *ggufReader) array(v *ggufValue, depth int) {
	if depth == maxGGUFNesting {
		r.fail("metadata arrays nest deeper than %d", maxGGUFNesting)
		return
	}
	v.array = r.uint32()
	if size := ggufSize(v.array); size > 0 {
		v.count = r.length("array elements", size, math.MaxInt64)
		v.offset = r.pos
		r.skip(v.count * size)
		return
	}
	v.count = r.length("array elements", 8, maxGGUFArray)
	v.offset = r.pos
	for i := int64(0); i < v.count && r.err == nil; i++ {
		switch v.array {
		case ggufString:
			r.skip(r.length("bytes of a string", 1, math.MaxInt64))
		case ggufArray:
			r.value(ggufArray, depth+1)
		default:
			r.fail("metadata array of unknown type %d", v.array)
		}
	}
}

// tensor reads the description of one tensor. Its offset still counts from
// the start of the data.
func (r *ggufReader) tensor(t table) {
	name := r.text("a tensor name", maxGGUFName)
	dims := r.uint32()
	if dims == 0 || dims > maxGGUFDims {
		r.fail("tensor %s has %d dimensions: want 1 to %d", name, dims, maxGGUFDims)
		return
	}
	info := tensorInfo{shape: make([]int64, dims)}
	for i := range info.shape { // innermost first
		info.shape[len(info.shape)-1-i] = int64(r.uint64())
	}
	n, ok := elements(info.shape)
	info.dtype, info.typeName = ggufType(r.uint32())
	info.offset = int64(r.uint64())
	if _, twice := t[name]; twice {
		r.fail("tensor %s occurs twice", name)
	}
	values, _ := info.dtype.block()
	if !ok || n > r.f.size*8 || info.shape[len(info.shape)-1]%values != 0 {
		r.fail("tensor %s: shape %s of %s is impossible", name, formatShape(info.shape), info.typeName)
		return
	}
	info.bytes = info.dtype.bytes(n)
	t[name] = info
}

// ggufType translates a tensor type of ggml.
func ggufType(id uint32) (dtype, string) {
	name := ggmlTypeName(id)
	for d := f32; d <= mxfp4; d++ {
		if strings.EqualFold(d.String(), name) {
			return d, name
		}
	}
	return dtypeNone, name
}

// ggmlTypeName names a type of ggml; the enumeration is ggml.h's.
func ggmlTypeName(id uint32) string {
	names := map[uint32]string{
		0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 8: "Q8_0", 30: "BF16", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
		16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
		23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
		35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
	}
	if name, ok := names[id]; ok {
		return name
	}
	return fmt.Sprintf("ggml type %d", id)
}

// placeData turns offsets from the start of the data, which follows the end of
// the header at the next multiple of the alignment, into offsets in the file,
// and checks them.
func (h *ggufHeader) placeData(f *file, headerEnd int64) error {
	alignment := int64(32)
	if v, ok := h.metadata["general.alignment"]; ok {
		alignment = int64(v.bits)
		if v.kind != ggufUint32 || alignment <= 0 || alignment&(alignment-1) != 0 {
			return &Error{File: f.name, Offset: -1, Key: "general.alignment", Reason: "want a power of two"}
		}
	}
	data := (headerEnd + alignment - 1) &^ (alignment - 1)
	for _, name := range h.tensors.names() {
		info := h.tensors[name]
		if info.offset < 0 || info.offset%alignment != 0 {
			return &Error{File: f.name, Offset: -1, Key: "tensor " + name, Reason: fmt.Sprintf("offset %d is not a multiple of the alignment %d", info.offset, alignment)}
		}
		if info.offset > f.size-data || info.bytes > f.size-data-info.offset {
			return &Error{File: f.name, Offset: -1, Key: "tensor " + name, Damaged: true,
				Reason: fmt.Sprintf("its %d bytes at %d of the data are not in the file of %d", info.bytes, info.offset, f.size)}
		}
		info.offset += data
		h.tensors[name] = info
	}
	return h.checkOverlap(f.name)
}

// checkOverlap refuses tensors that share bytes.
func (h *ggufHeader) checkOverlap(file string) error {
	names := h.tensors.names()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(h.tensors[a].offset, h.tensors[b].offset) })
	var end int64
	for i, name := range names {
		info := h.tensors[name]
		if info.offset < end && info.bytes > 0 {
			return &Error{File: file, Offset: info.offset, Key: "tensor " + name, Reason: "overlaps " + names[i-1]}
		}
		end = max(end, info.offset+info.bytes)
	}
	return nil
}
