package tokenizer

// model turns one pre-token into ids: "model" of a tokenizer.json. A model is read-only once loaded, so that goroutines may
// share it.
type model interface {
	// encode appends the ids of word, which is not empty.
	encode(dst []int32, word []byte, w *work) []int32

	// vocabulary holds the texts and ids of the model's own tokens, without added ones.
	vocabulary() *vocab

	// writeJSON writes the model as a tokenizer.json has it.
	writeJSON(w *writer)
}

// work is the memory of one Encode. It grows to the needs of the longest pre-token.
type work struct {
	mapped  []byte // a pre-token in the byte-level alphabet
	symbols []symbol
	queue   []uint64
	nodes   []lattice
}
