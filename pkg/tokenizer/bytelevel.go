package tokenizer

import (
	"substrate/internal/jsonio"
)

// byteLevelConfig are the members of the components "ByteLevel", which have them all in every role.
type byteLevelConfig struct {
	typed
	AddPrefixSpace *bool `json:"add_prefix_space"`
	TrimOffsets    *bool `json:"trim_offsets"` // about offsets, which we do not give
	UseRegex       *bool `json:"use_regex"`
}

func orTrue(b *bool) bool { return b == nil || *b }

// byteLevelSplit cuts text by the pattern of GPT-2 and maps the pieces to the byte-level alphabet.
type byteLevelSplit struct {
	prefixSpace bool    // text that does not start with a space gets one
	pattern     pattern // nil: the text is one piece
	rawBytes    bool    // leave the mapping to the model
}

func newByteLevelSplit(raw jsonio.RawValue) (preTokenizer, error) {
	var c byteLevelConfig
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	b := &byteLevelSplit{prefixSpace: orTrue(c.AddPrefixSpace)}
	if orTrue(c.UseRegex) {
		b.pattern = scanner(scanGPT2)
	}
	return b, nil
}

func (b *byteLevelSplit) split(p piece, emit func(piece) error) error {
	if b.prefixSpace && len(p.text) > 0 && p.text[0] != ' ' {
		p.text = append([]byte{' '}, p.text...)
	}
	if !b.rawBytes {
		next := emit
		emit = func(p piece) error {
			p.text = appendByteChars(nil, p.text)
			return next(p)
		}
	}
	if b.pattern == nil {
		return emit(p)
	}
	return b.pattern.find(p.text, func(start, end int) error { return emit(p.from(start, end)) })
}

// lastByteLevel returns the ByteLevel component that ends a pre-tokenizer, if it is the only one in it.
func lastByteLevel(p preTokenizer) *byteLevelSplit {
	switch p := p.(type) {
	case *byteLevelSplit:
		return p
	case preTokenizerSequence:
		if len(p) == 0 {
			return nil
		}
		for _, before := range p[:len(p)-1] {
			if containsByteLevel(before) {
				return nil
			}
		}
		return lastByteLevel(p[len(p)-1])
	}
	return nil
}

func containsByteLevel(p preTokenizer) bool {
	switch p := p.(type) {
	case *byteLevelSplit:
		return true
	case preTokenizerSequence:
		for _, q := range p {
			if containsByteLevel(q) {
				return true
			}
		}
	}
	return false
}

// byteLevelDecoder maps tokens in the byte-level alphabet to bytes. A token with another character, which only an added one
// can be, stands for itself.
type byteLevelDecoder struct{}

func newByteLevelDecoder(raw jsonio.RawValue) (decoder, error) {
	var c byteLevelConfig
	return byteLevelDecoder{}, jsonio.UnmarshalKnown("", raw, &c)
}

func (byteLevelDecoder) start(next stage) stage { return &byteLevelStage{next: next} }

type byteLevelStage struct {
	gather
	next   stage
	mapped []byte
}

func (s *byteLevelStage) push(part []byte, last bool) {
	token, whole := s.add(part, last)
	if !whole {
		return
	}
	var ok bool
	if s.mapped, ok = appendCharBytes(s.mapped[:0], token); ok {
		token = s.mapped
	}
	s.next.push(token, true)
}

func (s *byteLevelStage) flush() { s.next.flush() }
