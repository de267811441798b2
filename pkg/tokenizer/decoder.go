package tokenizer

import (
	"bytes"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// decoder turns the texts of tokens back into text: "decoder" of a tokenizer.json. Decoding is a chain of stages, one for
// each component, that take tokens one after the other and give what is certain, so that text can be shown as it comes.
type decoder interface {
	// start returns a stage that hands its pieces to next.
	start(next stage) stage
}

// stage is a decoder at work on one sequence of pieces, at first one for each token.
type stage interface {
	// push takes the next part of a piece; last tells that the piece ends with it. The part is the caller's again when
	// push returns.
	push(part []byte, last bool)

	// flush tells that no piece follows.
	flush()
}

// gather puts the parts of a piece together for stages that need it whole.
type gather struct{ buf []byte }

// add returns the whole piece, valid until the next call, once its last part is there.
func (g *gather) add(part []byte, last bool) (piece []byte, whole bool) {
	if last && len(g.buf) == 0 {
		return part, true
	}
	g.buf = append(g.buf, part...)
	if !last {
		return nil, false
	}
	piece, g.buf = g.buf, g.buf[:0]
	return piece, true
}

func newDecoder(raw jsonio.RawValue, depth int) (decoder, error) {
	typ, err := componentType(raw)
	if err != nil {
		return nil, err
	}
	switch typ {
	case "Sequence":
		return newDecoderSequence(raw, depth)
	case "ByteLevel":
		return newByteLevelDecoder(raw)
	case "ByteFallback":
		return byteFallback{}, known(raw)
	case "Fuse":
		return fuse{}, known(raw)
	case "Strip":
		return newStripDecoder(raw)
	case "Replace":
		return newReplaceDecoder(raw)
	case "Metaspace":
		m, err := newMetaspace(raw)
		return metaspaceDecoder{m}, err
	}
	return nil, unsupported("decoder", typ)
}

type decoderSequence []decoder

func newDecoderSequence(raw jsonio.RawValue, depth int) (decoder, error) {
	var c struct {
		typed
		Decoders []jsonio.RawValue `json:"decoders"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	if depth >= maxNesting {
		return nil, jsonio.Errorf("", "", "more than %d components in each other", maxNesting)
	}
	list, err := makeEach("decoders", c.Decoders, func(raw jsonio.RawValue) (decoder, error) {
		return newDecoder(raw, depth+1)
	})
	return decoderSequence(list), err
}

func (s decoderSequence) start(next stage) stage {
	for i := len(s) - 1; i >= 0; i-- {
		next = s[i].start(next)
	}
	return next
}

// spaced is the decoder of a tokenizer without one: it sets a space between tokens.
type spaced struct{}

func (spaced) start(next stage) stage { return &spacedStage{next: next} }

type spacedStage struct {
	next stage
	some bool
}

func (s *spacedStage) push(part []byte, last bool) {
	if s.some {
		s.next.push([]byte{' '}, true)
	}
	s.some = true
	s.next.push(part, last)
}

func (s *spacedStage) flush() { s.next.flush() }

// byteFallback turns byte tokens, "<0x41>", into bytes. Side by side they must make up UTF-8; where they do not, each is
// U+FFFD.
type byteFallback struct{}

func (byteFallback) start(next stage) stage { return &byteFallbackStage{next: next} }

type byteFallbackStage struct {
	gather
	next stage
	run  []byte // bytes that may yet turn out to be no UTF-8
}

func (s *byteFallbackStage) push(part []byte, last bool) {
	token, whole := s.add(part, last)
	if !whole {
		return
	}
	if b, ok := fallbackByte(token); ok {
		s.run = append(s.run, b)
		return
	}
	s.end()
	s.next.push(token, true)
}

func (s *byteFallbackStage) flush() {
	s.end()
	s.next.flush()
}

func (s *byteFallbackStage) end() {
	switch {
	case len(s.run) == 0:
		return
	case utf8.Valid(s.run):
		s.next.push(s.run, true)
	default:
		for range s.run {
			s.next.push([]byte("\uFFFD"), true)
		}
	}
	s.run = s.run[:0]
}

// fallbackByte reads "<0x41>". The reference takes any hexadecimal number of two characters, such as "+F" too.
func fallbackByte(token []byte) (byte, bool) {
	if len(token) != 6 || string(token[:3]) != "<0x" || token[5] != '>' {
		return 0, false
	}
	high, ok := hexDigit(token[3])
	if token[3] == '+' {
		high, ok = 0, true
	}
	low, okLow := hexDigit(token[4])
	return high<<4 | low, ok && okLow
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// fuse makes one piece of all: what follows it in a sequence sees the ends of the text, not of tokens.
type fuse struct{}

func (fuse) start(next stage) stage { return fuseStage{next} }

type fuseStage struct{ next stage }

func (s fuseStage) push(part []byte, _ bool) { s.next.push(part, false) }

func (s fuseStage) flush() {
	s.next.push(nil, true)
	s.next.flush()
}

// stripDecoder takes up to so many copies of a character off the ends of every piece.
type stripDecoder struct {
	content     []byte // one character
	left, right int
}

func newStripDecoder(raw jsonio.RawValue) (decoder, error) {
	var c struct {
		typed
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(c.Content) != 1 {
		return nil, jsonio.Errorf("", "/content", "%q is not one character", c.Content)
	}
	if c.Start < 0 || c.Stop < 0 {
		return nil, jsonio.Errorf("", "", "start %d and stop %d may not be below 0", c.Start, c.Stop)
	}
	return &stripDecoder{[]byte(c.Content), c.Start, c.Stop}, nil
}

func (d *stripDecoder) start(next stage) stage { return &stripStage{next: next, d: d, left: d.left} }

type stripStage struct {
	next stage
	d    *stripDecoder
	left int    // copies that may yet go from the start of the piece
	held []byte // copies at its end so far, which go if it ends there
}

func (s *stripStage) push(part []byte, last bool) {
	for s.left > 0 && len(part) > 0 {
		rest, ok := bytes.CutPrefix(part, s.d.content)
		if !ok {
			s.left = 0
			break
		}
		part = rest
		s.left--
	}
	s.held = append(s.held, part...)
	keep := s.held
	for n := 0; n < s.d.right; n++ {
		rest, ok := bytes.CutSuffix(keep, s.d.content)
		if !ok {
			break
		}
		keep = rest
	}
	s.next.push(keep, last)
	s.held = append(s.held[:0], s.held[len(keep):]...)
	if last {
		s.left, s.held = s.d.left, s.held[:0]
	}
}

func (s *stripStage) flush() { s.next.flush() }

// replaceDecoder puts a fixed text in the place of all matches of a pattern in a piece.
type replaceDecoder struct{ replace *replace }

func newReplaceDecoder(raw jsonio.RawValue) (decoder, error) {
	r, err := newReplace(raw)
	if err != nil {
		return nil, err
	}
	return replaceDecoder{r}, nil
}

func (d replaceDecoder) start(next stage) stage { return &replaceStage{next: next, replace: d.replace} }

type replaceStage struct {
	gather
	next    stage
	replace *replace
}

func (s *replaceStage) push(part []byte, last bool) {
	token, whole := s.add(part, last)
	if !whole {
		return
	}
	text, err := s.replace.normalize(token)
	if err != nil {
		text = token // only a hostile pattern takes so long on one token
	}
	s.next.push(text, true)
}

func (s *replaceStage) flush() { s.next.flush() }
