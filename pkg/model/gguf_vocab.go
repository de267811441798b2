package model

import (
	"encoding/binary"
	"math"
	"strings"
)

// maxVocabBytes bounds the text of all tokens, and of all merges.
const maxVocabBytes = 256 << 20

// ggufVocab says where the tokenizer's arrays are.
type ggufVocab struct {
	model, pre            string
	tokens, types, merges ggufValue
	scores                ggufValue
	bos, eos, unk, pad    int
	addBOS                bool
	noSpacePrefix         bool
	chatTemplate          string
}

func (h *ggufHeader) vocab() (*ggufVocab, error) {
	const prefix = "tokenizer.ggml."
	c := &ggufConfig{h: h}
	array := func(key string, kinds ...uint32) ggufValue {
		v, ok := h.metadata[prefix+key]
		if !ok {
			return v
		}
		for _, kind := range kinds {
			if v.kind == ggufArray && v.array == kind {
				return v
			}
		}
		c.fail(prefix+key, "%s of type %d is not the array that belongs here", v, v.array)
		return v
	}
	v := &ggufVocab{
		model:        h.metadata[prefix+"model"].text,
		pre:          h.metadata[prefix+"pre"].text,
		tokens:       array("tokens", ggufString),
		types:        array("token_type", ggufInt32, ggufUint32),
		merges:       array("merges", ggufString),
		scores:       array("scores", ggufFloat32),
		bos:          c.token(prefix + "bos_token_id"),
		eos:          c.token(prefix + "eos_token_id"),
		unk:          c.token(prefix + "unknown_token_id"),
		pad:          c.token(prefix + "padding_token_id"),
		addBOS:       h.metadata[prefix+"add_bos_token"].bits != 0,
		chatTemplate: h.metadata["tokenizer.chat_template"].text,
	}
	// llama.cpp's defaults for vocabularies of SentencePiece.
	if _, ok := h.metadata[prefix+"add_bos_token"]; !ok {
		v.addBOS = v.model == "llama"
	}
	if space, ok := h.metadata[prefix+"add_space_prefix"]; ok {
		v.noSpacePrefix = space.bits == 0
	}
	if v.scores.count != 0 && v.scores.count != v.tokens.count {
		c.fail(prefix+"scores", "%d scores of %d tokens", v.scores.count, v.tokens.count)
	}
	if v.types.count != 0 && v.types.count != v.tokens.count {
		c.fail(prefix+"token_type", "%d types for %d tokens", v.types.count, v.tokens.count)
	}
	return v, c.err
}

// read brings the arrays.
func (v *ggufVocab) read(f *file) (*Vocabulary, error) {
	if v.tokens.count == 0 {
		return nil, &Error{File: f.name, Offset: -1, Key: "tokenizer.ggml.tokens", Reason: "the file has no vocabulary"}
	}
	out := &Vocabulary{
		Model: v.model, Pre: v.pre,
		BOS: v.bos, EOS: v.eos, UNK: v.unk, PAD: v.pad,
		AddBOS: v.addBOS, NoSpacePrefix: v.noSpacePrefix, ChatTemplate: v.chatTemplate,
	}
	var err error
	if out.Tokens, err = readStrings(f, v.tokens); err != nil {
		return nil, err
	}
	if out.Merges, err = readStrings(f, v.merges); err != nil {
		return nil, err
	}
	types, err := readWords(f, v.types)
	if err != nil {
		return nil, err
	}
	for _, w := range types {
		out.TokenTypes = append(out.TokenTypes, int32(w))
	}
	scores, err := readWords(f, v.scores)
	if err != nil {
		return nil, err
	}
	for _, w := range scores {
		out.Scores = append(out.Scores, math.Float32frombits(w))
	}
	return out, nil
}

// readWords brings an array of numbers of 32 bits.
func readWords(f *file, v ggufValue) ([]uint32, error) {
	raw := make([]byte, 4*v.count)
	if err := f.readAt(raw, v.offset); err != nil {
		return nil, err
	}
	words := make([]uint32, v.count)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return words, nil
}

// readStrings brings an array of strings as parts of a single one, which costs
// one allocation instead of one each.
func readStrings(f *file, v ggufValue) ([]string, error) {
	r := newGGUFReader(f, v.offset)
	ends := make([]int, 0, v.count)
	var all strings.Builder
	for range v.count {
		n := r.length("bytes of a string", 1, maxGGUFName)
		all.Write(r.next(int(n)))
		ends = append(ends, all.Len())
		if all.Len() > maxVocabBytes {
			r.fail("vocabulary of more than %d bytes", maxVocabBytes)
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	out, start := make([]string, v.count), 0
	for i, end := range ends {
		out[i] = all.String()[start:end]
		start = end
	}
	return out, nil
}
