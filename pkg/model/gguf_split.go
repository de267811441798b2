package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
)

// maxSplits bounds the files of one model.
const maxSplits = 1 << 12

// splitSuffix is how llama.cpp names file i, counted from 0, of n.
func splitSuffix(i, n int) string { return fmt.Sprintf("-%05d-of-%05d.gguf", i+1, n) }

// split is a file's place among those of its model: file no of count.
func (h *ggufHeader) split() (no, count int, err error) {
	number := func(key string, fallback int) int {
		v, ok := h.metadata[key]
		if !ok {
			return fallback
		}
		n, ok := v.integer()
		if !ok || n < 0 || n > maxSplits {
			err = &Error{File: h.file, Offset: -1, Key: key, Reason: fmt.Sprintf("%s: want a number up to %d", v, maxSplits)}
			return fallback
		}
		return int(n)
	}
	return number("split.no", 0), number("split.count", 1), err
}

// joinSplit opens the other files of a model that is split, and adds their
// tensors to h, the header of the first one, which alone tells of the model.
// It returns the path without what counts the files.
func (m *Model) joinSplit(h *ggufHeader) (stem string, err error) {
	no, count, err := h.split()
	if err != nil || count <= 1 {
		return m.path, err
	}
	fault := func(format string, args ...any) (string, error) {
		return "", &Error{File: h.file, Offset: -1, Key: "split.no", Reason: fmt.Sprintf(format, args...)}
	}
	stem, ok := strings.CutSuffix(m.path, splitSuffix(no, count))
	if !ok {
		return fault("file %d of %d, whose name should end with %s", no+1, count, splitSuffix(no, count))
	}
	if no != 0 {
		return fault("file %d of %d: give the first one, %s", no+1, count, filepath.Base(stem)+splitSuffix(0, count))
	}
	digest := sha256.New()
	digestPart(digest, h.digest, nil)
	for i := 1; i < count; i++ {
		f, err := m.openFile(stem + splitSuffix(i, count))
		if err != nil {
			return "", err
		}
		other, err := readGGUF(f)
		if err != nil {
			return "", err
		}
		if no, n, err := other.split(); err != nil || no != i || n != count {
			return "", &Error{File: f.name, Offset: -1, Key: "split.no", Reason: fmt.Sprintf("file %d of %d where %d of %d belongs", no+1, n, i+1, count)}
		}
		for _, name := range other.tensors.names() {
			if _, twice := h.tensors[name]; twice {
				return "", &Error{File: f.name, Offset: -1, Key: "tensor " + name, Reason: "is in another file of the model too"}
			}
			info := other.tensors[name]
			info.file = i
			h.tensors[name] = info
		}
		digestPart(digest, other.digest, nil)
	}
	if v, ok := h.metadata["split.tensors.count"]; ok {
		if n, _ := v.integer(); n != int64(len(h.tensors)) {
			return "", &Error{File: h.file, Offset: -1, Key: "split.tensors.count", Reason: fmt.Sprintf("%s, but the files have %d", v, len(h.tensors))}
		}
	}
	h.digest = hex.EncodeToString(digest.Sum(nil))
	return stem, nil
}
