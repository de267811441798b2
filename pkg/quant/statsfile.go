package quant

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"substrate/internal/jsonio"
	"substrate/internal/safetensors"
	"substrate/pkg/plane"
)

// A statistics file is a safetensors file. Its tensors are one F32 vector of
// second moments per input, such as "block_5.attn.q", and "tokens", I64: for
// each of them in order of name the rows of x that were averaged. Of an input
// with n columns there may also be "block_5.attn.q.gram", F32 [n*(n+1)/2], the
// upper triangle of the mean of x x^T by rows, or "block_5.attn.q.rows", BF16
// [m, n], rows of x. The same statistics give the same bytes, whose sha256 is
// the file's name.

const (
	statsFormat     = "sb.stats/1"
	tokensName      = "tokens"
	maxStatsHeader  = 64 << 20 // bytes; a model of 100,000 experts has 20 MiB
	maxStatsTensors = 1 << 21
	maxStatsCols    = 1 << 20 // columns of a Gram matrix, or rows of x
)

// statsTensor is an entry of the header of a statistics file.
type statsTensor safetensors.Tensor

// Write writes s as a statistics file.
func (s *Stats) Write(w io.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.inputs))
	tokens := make([]byte, 0, 8*len(names))
	tensors := map[string]safetensors.Tensor{}
	at := int64(8 * len(names))
	tensors[tokensName] = safetensors.Tensor{DType: "I64", Shape: []int64{int64(len(names))}, Offsets: [2]int64{0, at}}
	for _, name := range names {
		in := s.inputs[name]
		tokens = binary.LittleEndian.AppendUint64(tokens, uint64(in.tokens))
		end := at + 4*int64(in.cols)
		tensors[name] = safetensors.Tensor{DType: "F32", Shape: []int64{int64(in.cols)}, Offsets: [2]int64{at, end}}
		at = end
		if g, ok := s.grams[name]; ok {
			end += g.bytes()
			if n, m := int64(g.cols), int64(g.rows); m > 0 {
				tensors[name+rowsSuffix] = safetensors.Tensor{DType: "BF16", Shape: []int64{m, n}, Offsets: [2]int64{at, end}}
			} else {
				tensors[name+gramSuffix] = safetensors.Tensor{DType: "F32", Shape: []int64{n * (n + 1) / 2}, Offsets: [2]int64{at, end}}
			}
			at = end
		}
	}
	header, err := safetensors.Header(statsFormat, tensors)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	out.Write(header)
	out.Write(tokens)
	for _, name := range names {
		mean, err := s.read(name, s.inputs[name])
		if err != nil {
			return err
		}
		b := make([]byte, 4*len(mean))
		plane.EncodeFloat32(b, mean)
		out.Write(b)
		g, ok := s.grams[name]
		if !ok {
			continue
		}
		if g.data != nil {
			out.Write(g.data)
		} else if _, err := io.Copy(out, io.NewSectionReader(s.file, g.offset, g.bytes())); err != nil {
			return err
		}
	}
	return out.Flush()
}

// StatsDir is the folder of statistics files, in the user's cache folder.
func StatsDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "substrate", "stats"), nil
}

// Save writes s to a file in dir, made if missing, and returns its path, whose
// base is the file's sha256.
func (s *Stats) Save(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".stats-*")
	if err != nil {
		return "", err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	hash := sha256.New()
	if err := s.Write(io.MultiWriter(f, hash)); err != nil {
		return "", err
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return "", err
	}
	path = filepath.Join(dir, hex.EncodeToString(hash.Sum(nil))+".safetensors")
	return path, os.Rename(f.Name(), path)
}

// FindStats opens the statistics file with a digest in dir. One that is not
// there is an fs.ErrNotExist.
func FindStats(dir, digest string) (*Stats, error) {
	if b, err := hex.DecodeString(digest); err != nil || len(b) != sha256.Size {
		return nil, statsErrorf("", "digest %q is not a sha256 in hex", digest)
	}
	path := filepath.Join(dir, digest+".safetensors")
	s, err := OpenStats(path)
	if err != nil {
		return nil, err
	}
	if s.sha256 != digest {
		s.Close()
		return nil, statsErrorf(path, "sha256 is %s: the file is damaged, remove it and calibrate again", s.sha256)
	}
	return s, nil
}

// OpenStats opens a statistics file and checks all of it. Moments are read
// when they are asked for.
func OpenStats(path string) (*Stats, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	var s *Stats
	if err == nil {
		s, err = ReadStats(path, f, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	s.close = f.Close
	return s, nil
}

// ReadStats is OpenStats of size bytes of r, called name in errors.
func ReadStats(name string, r io.ReaderAt, size int64) (*Stats, error) {
	s := NewStats()
	s.name, s.file = name, r
	names, err := s.readHeader(name, r, size)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		tokens := make([]byte, 8*len(names))
		if _, err := r.ReadAt(tokens, s.inputs[tokensName].offset); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i, n := range names {
			in := s.inputs[n]
			in.tokens = int64(binary.LittleEndian.Uint64(tokens[8*i:]))
			if in.tokens < 0 || in.tokens > 1<<53 {
				return nil, statsErrorf(name, "tensor %q: %d tokens of input %q", tokensName, in.tokens, n)
			}
			s.inputs[n] = in
		}
	}
	delete(s.inputs, tokensName)
	for _, n := range names {
		if _, err := s.read(n, s.inputs[n]); err != nil {
			return nil, err
		}
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(r, 0, size)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.sha256 = hex.EncodeToString(hash.Sum(nil))
	return s, nil
}

// readHeader fills s.inputs, "tokens" among them, and returns the names of the
// others in order.
func (s *Stats) readHeader(name string, r io.ReaderAt, size int64) ([]string, error) {
	var b [8]byte
	if size < int64(len(b)) {
		return nil, statsErrorf(name, "%d bytes: not a statistics file", size)
	}
	if _, err := r.ReadAt(b[:], 0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	n := binary.LittleEndian.Uint64(b[:])
	if n > maxStatsHeader || int64(n) > size-8 {
		return nil, statsErrorf(name, "offset 0: header of %d bytes in a file of %d: not a statistics file", n, size)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, fmt.Errorf("%s: offset 8: %w", name, err)
	}
	members, err := jsonio.Members(name, text)
	if err != nil {
		return nil, err
	}
	if len(members) > maxStatsTensors {
		return nil, statsErrorf(name, "%d tensors, at most %d", len(members), maxStatsTensors)
	}
	var names []string
	var spans [][2]int64
	format := ""
	for _, m := range members {
		if m.Name == "__metadata__" {
			var meta struct {
				Format string `json:"format"`
			}
			if err := jsonio.UnmarshalLoose(name, m.Value, &meta); err != nil {
				return nil, err
			}
			format = meta.Format
			continue
		}
		var t statsTensor
		if err := jsonio.Unmarshal(name, m.Value, &t); err != nil {
			return nil, err
		}
		spans = append(spans, t.Offsets)
		if input, ok := gramInput(m.Name); ok {
			g, err := t.grams(m.Name, size-8-int64(n))
			if err != nil {
				return nil, statsErrorf(name, "tensor %q: %v", m.Name, err)
			}
			if _, again := s.grams[input]; again {
				return nil, statsErrorf(name, "tensor %q: input %q has another such tensor", m.Name, input)
			}
			g.offset += 8 + int64(n)
			s.grams[input] = g
			continue
		}
		in, err := t.input(m.Name, size-8-int64(n))
		if err != nil {
			return nil, statsErrorf(name, "tensor %q: %v", m.Name, err)
		}
		in.offset += 8 + int64(n)
		s.inputs[m.Name] = in
		if m.Name != tokensName {
			names = append(names, m.Name)
		}
	}
	if format != statsFormat {
		return nil, statsErrorf(name, "format %q, want %q: not a statistics file", format, statsFormat)
	}
	if tokens, ok := s.inputs[tokensName]; !ok || tokens.cols != len(names) {
		return nil, statsErrorf(name, "tensor %q has %d values for %d inputs", tokensName, tokens.cols, len(names))
	}
	for input, g := range s.grams {
		if in, ok := s.inputs[input]; !ok || in.cols != g.cols {
			return nil, statsErrorf(name, "input %q: a Gram matrix of %d columns without as many moments", input, g.cols)
		}
	}
	slices.Sort(names)
	return names, checkSpans(name, spans, size-8-int64(n))
}

// input checks a tensor against the bytes of data in the file.
func (t *statsTensor) input(name string, data int64) (input, error) {
	dtype, width := "F32", int64(4)
	if name == tokensName {
		dtype, width = "I64", 8
	}
	begin, end := t.Offsets[0], t.Offsets[1]
	if t.DType != dtype || len(t.Shape) != 1 {
		return input{}, fmt.Errorf("%s of %d dimensions, want a vector of %s", t.DType, len(t.Shape), dtype)
	}
	if begin < 0 || begin > end || end > data {
		return input{}, fmt.Errorf("bytes %d to %d of %d", begin, end, data)
	}
	if t.Shape[0] != (end-begin)/width || (end-begin)%width != 0 {
		return input{}, fmt.Errorf("%d values in %d bytes", t.Shape[0], end-begin)
	}
	return input{cols: int(t.Shape[0]), offset: begin}, nil
}

// gramInput is the input that a tensor holds the Gram matrix or rows of.
func gramInput(tensor string) (input string, ok bool) {
	if input, ok = strings.CutSuffix(tensor, gramSuffix); ok {
		return input, true
	}
	return strings.CutSuffix(tensor, rowsSuffix)
}

// grams is input for a tensor of a Gram matrix or of rows.
func (t *statsTensor) grams(name string, data int64) (grams, error) {
	begin, end := t.Offsets[0], t.Offsets[1]
	if begin < 0 || begin > end || end > data {
		return grams{}, fmt.Errorf("bytes %d to %d of %d", begin, end, data)
	}
	g := grams{offset: begin}
	switch {
	case strings.HasSuffix(name, rowsSuffix) && t.DType == "BF16" && len(t.Shape) == 2 && min(t.Shape[0], t.Shape[1]) > 0 &&
		max(t.Shape[0], t.Shape[1]) <= maxStatsCols:
		g.rows, g.cols = int(t.Shape[0]), int(t.Shape[1])
	case strings.HasSuffix(name, gramSuffix) && t.DType == "F32" && len(t.Shape) == 1 && t.Shape[0] > 0 && t.Shape[0] <= maxStatsCols*maxStatsCols:
		g.cols = int((math.Sqrt(float64(8*t.Shape[0]+1)) - 1) / 2)
		if n := int64(g.cols); n*(n+1)/2 != t.Shape[0] {
			return grams{}, fmt.Errorf("%d values are not a triangle", t.Shape[0])
		}
	default:
		return grams{}, fmt.Errorf("%s of shape %v, want rows in BF16 or a triangle in F32", t.DType, t.Shape)
	}
	if g.bytes() != end-begin {
		return grams{}, fmt.Errorf("shape %v in %d bytes", t.Shape, end-begin)
	}
	return g, nil
}

// checkSpans refuses gaps and overlaps, so that no byte means two things.
func checkSpans(name string, spans [][2]int64, data int64) error {
	slices.SortFunc(spans, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	at := int64(0)
	for _, s := range spans {
		if s[0] != at {
			return statsErrorf(name, "tensors overlap or leave a gap at byte %d of the data", min(at, s[0]))
		}
		at = s[1]
	}
	if at != data {
		return statsErrorf(name, "%d bytes after the last tensor", data-at)
	}
	return nil
}
