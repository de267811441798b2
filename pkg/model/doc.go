// Package model reads checkpoints: Hugging Face folders with safetensors
// files, among them those that MLX quantized, and GGUF files. What is
// particular to a model family is in a file of its own, family_*.go.
//
// [Open] reads headers alone and describes the model as a [doc.Profile], in
// which every tensor has the name, shape and role that the families need,
// whatever the file calls it. [Model.ReadTensor] then brings the values of one
// tensor as float32, dequantized and in Hugging Face row order, through a
// buffer of bounded size.
//
// A checkpoint that the families would not compute exactly as its makers meant
// is refused: an unknown key of the configuration that might change the maths,
// a tensor that is missing, of the wrong shape, or one too many.
package model

import "strconv"

// Error says what is wrong with a checkpoint, and where. Errors of the file
// system are not of this type.
type Error struct {
	File   string
	Offset int64  // byte in the file; -1 where no single place is meant
	Key    string // configuration key or tensor; "" where none is meant
	Reason string
	// Damaged says that bytes are missing or wrong; otherwise the checkpoint is
	// of a kind that cannot be used.
	Damaged bool
}

// ExitCode is 4 for damage and 3 for what cannot be used, as for documents.
func (e *Error) ExitCode() int {
	if e.Damaged {
		return 4
	}
	return 3
}

// Error has the form "model.safetensors: offset 8: reason".
func (e *Error) Error() string {
	s := e.File
	if e.Offset >= 0 {
		s += ": offset " + strconv.FormatInt(e.Offset, 10)
	}
	if e.Key != "" {
		s += ": " + e.Key
	}
	return s + ": " + e.Reason
}
