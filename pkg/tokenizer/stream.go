package tokenizer

import (
	"unicode/utf8"
)

// Stream decodes tokens as they come. What Push and Flush return, put together, is what [Tokenizer.Decode] gives for all
// of the tokens: whole characters only, with U+FFFD for bytes that are not UTF-8. A Stream is for one goroutine.
type Stream struct {
	t     *Tokenizer
	chain stage
	out   *textStage
}

// NewStream starts the decoding of a sequence of tokens.
func (t *Tokenizer) NewStream() *Stream {
	out := &textStage{}
	return &Stream{t: t, chain: t.decoder.start(out), out: out}
}

// Push returns the text that is certain now that id follows. It is empty while a character is incomplete. An id without a
// token, as of the padded rows of an embedding, has no text. Special tokens have theirs: who does not want to show one
// asks [Tokenizer.Special] first.
func (s *Stream) Push(id int32) string {
	if token := s.t.token(id); token != nil {
		s.chain.push(token, true)
	}
	return s.out.take()
}

// Flush returns the rest of the text and starts a new sequence.
func (s *Stream) Flush() string {
	s.chain.flush()
	s.out.flush()
	text := s.out.take()
	s.chain = s.t.decoder.start(s.out)
	return text
}

// Decode returns the text of tokens. See [Stream.Push] for special ones and those without text.
func (t *Tokenizer) Decode(ids []int32) string {
	s := t.NewStream()
	for _, id := range ids {
		if token := t.token(id); token != nil {
			s.chain.push(token, true)
		}
	}
	s.chain.flush()
	s.out.flush()
	return s.out.take()
}

// textStage, the end of a chain, gathers bytes and gives them away as valid UTF-8.
type textStage struct {
	text []byte // valid
	tail []byte // the start of a character
}

func (s *textStage) push(part []byte, _ bool) {
	if len(s.tail) > 0 {
		part = append(s.tail, part...)
		s.tail = part[:0]
	}
	for len(part) > 0 {
		r, size := utf8.DecodeRune(part)
		if r == utf8.RuneError && size == 1 {
			if !utf8.FullRune(part) {
				s.tail = append(s.tail[:0], part...)
				return
			}
			size = invalidLen(part)
			s.text = append(s.text, "\uFFFD"...)
		} else {
			s.text = append(s.text, part[:size]...)
		}
		part = part[size:]
	}
}

// flush gives up on a character that does not end.
func (s *textStage) flush() {
	if len(s.tail) > 0 {
		s.text = append(s.text, "\uFFFD"...)
		s.tail = s.tail[:0]
	}
}

// take returns the text so far.
func (s *textStage) take() string {
	text := string(s.text)
	s.text = s.text[:0]
	return text
}

// invalidLen returns how many bytes at the start of b one U+FFFD stands for: as many as could start a character ("maximal
// subpart", Unicode 3.9, as Rust's from_utf8_lossy and browsers do).
func invalidLen(b []byte) int {
	n := 0
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return max(n, 1)
}
