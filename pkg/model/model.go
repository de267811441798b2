package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"substrate/pkg/doc"
)

// Model is an open checkpoint. Its methods are safe for concurrent use.
type Model struct {
	path    string
	profile *doc.Profile
	tensors table
	files   []*file
	vocab   *ggufVocab // nil for a Hugging Face folder
	buffers sync.Pool  // *[]byte of chunkBytes, for reading
}

// Open reads the headers of a checkpoint: a Hugging Face folder with
// config.json and safetensors files, or a .gguf file. It reads no weights.
//
// Errors are of type [*Error] where the checkpoint is at fault.
func Open(path string) (*Model, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	m := &Model{path: path}
	m.buffers.New = func() any {
		b := make([]byte, chunkBytes)
		return &b
	}
	switch {
	case info.IsDir():
		err = m.openFolder()
	case strings.HasSuffix(path, ".safetensors"), filepath.Base(path) == "config.json":
		err = &Error{File: path, Offset: -1, Reason: "give the folder that holds it, with config.json and the safetensors files"}
	default:
		err = m.openGGUF()
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close closes the files. The profile stays valid.
func (m *Model) Close() error {
	var errs []error
	for _, f := range m.files {
		if f.c != nil {
			errs = append(errs, f.c.Close())
		}
	}
	m.files = nil
	return errors.Join(errs...)
}

// Profile describes the model: every op in topological order, with the place
// of its tensors. The caller must not change it.
func (m *Model) Profile() *doc.Profile { return m.profile }

// modelID names a model after its file or folder. In the cache of the Hugging
// Face hub that is models--ORG--NAME/snapshots/REVISION.
func modelID(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	base := filepath.Base(path)
	snapshots := filepath.Dir(path)
	repo, ok := strings.CutPrefix(filepath.Base(filepath.Dir(snapshots)), "models--")
	if ok && filepath.Base(snapshots) == "snapshots" {
		return strings.ReplaceAll(repo, "--", "/")
	}
	return strings.TrimSuffix(base, ".gguf")
}

// openFile opens a file of the checkpoint and keeps it.
func (m *Model) openFile(path string) (*file, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	m.files = append(m.files, f)
	return f, nil
}

// lookup finds the tensor that t names, and checks that t fits it.
func (m *Model) lookup(t *doc.Tensor) (tensorInfo, error) {
	info, ok := m.tensors[t.Source.Name]
	fault := func(format string, args ...any) (tensorInfo, error) {
		return info, &Error{File: m.path, Offset: -1, Key: "tensor " + t.Source.Name, Reason: fmt.Sprintf(format, args...)}
	}
	if !ok {
		return fault("is not in this model")
	}
	if info.dtype == dtypeNone {
		return fault("type %s is not supported", info.typeName)
	}
	rows, cols := int64(t.Rows), int64(t.Cols)
	if part := t.Source.Part; part != nil {
		rows, cols = int64(part.Rows), int64(part.Cols)
	}
	matrices := int64(1)
	if t.Source.Index >= 0 && len(info.shape) > 1 {
		matrices = info.shape[0]
		if int64(t.Source.Index) >= matrices {
			return fault("no matrix %d in shape %s", t.Source.Index, formatShape(info.shape))
		}
	}
	n, _ := elements(info.shape)
	values, _ := info.block()
	if t.Rows <= 0 || t.Cols <= 0 || rows <= 0 || cols <= 0 || rows > n/cols || rows*cols*matrices != n || n/matrices%values != 0 {
		return fault("shape %s has no matrix of [%d, %d]", formatShape(info.shape), t.Rows, t.Cols)
	}
	return info, nil
}
