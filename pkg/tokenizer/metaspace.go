package tokenizer

import (
	"bytes"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// metaspace has spaces as a character of their own, and may set one before a text: the pre-tokenizer and decoder of
// tokenizers made by SentencePiece.
type metaspace struct {
	mark   []byte // one character
	scheme prependScheme
	whole  bool // a text stays one word
}

// prependScheme says which texts get a mark in front, if they do not have one.
type prependScheme string

const (
	prependAlways prependScheme = "always" // every piece
	prependFirst  prependScheme = "first"  // the piece that the text starts with
	prependNever  prependScheme = "never"
)

func newMetaspace(raw jsonio.RawValue) (*metaspace, error) {
	var c struct {
		typed
		Replacement    string         `json:"replacement"`
		StrRep         string         `json:"str_rep"` // the same, in old files
		PrependScheme  *prependScheme `json:"prepend_scheme"`
		AddPrefixSpace *bool          `json:"add_prefix_space"` // in files from before prepend_scheme
		Split          *bool          `json:"split"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return nil, jsonio.Errorf("", "/replacement", "%q is not one character", c.Replacement)
	}
	m := &metaspace{mark: []byte(c.Replacement), scheme: prependAlways, whole: c.Split != nil && !*c.Split}
	if c.PrependScheme != nil {
		m.scheme = *c.PrependScheme
	}
	switch m.scheme {
	case prependAlways, prependFirst, prependNever:
	default:
		return nil, jsonio.Errorf("", "/prepend_scheme", "%q is not always, first or never", m.scheme)
	}
	if c.AddPrefixSpace != nil && !*c.AddPrefixSpace && m.scheme != prependNever {
		if c.PrependScheme != nil {
			return nil, jsonio.Errorf("", "/add_prefix_space", "false does not fit prepend_scheme %q", m.scheme)
		}
		m.scheme = prependNever
	}
	return m, nil
}

func (m *metaspace) split(p piece, emit func(piece) error) error {
	text := p.text
	spaces := bytes.Count(text, []byte{' '})
	prepend := !bytes.HasPrefix(text, m.mark) && !bytes.HasPrefix(text, []byte{' '}) &&
		(m.scheme == prependAlways || m.scheme == prependFirst && p.first)
	if spaces > 0 || prepend {
		text = make([]byte, 0, len(p.text)+(spaces+1)*len(m.mark))
		if prepend {
			text = append(text, m.mark...)
		}
		for _, c := range p.text {
			if c == ' ' {
				text = append(text, m.mark...)
			} else {
				text = append(text, c)
			}
		}
	}
	p.text = text
	if m.whole {
		return emit(p)
	}
	// A mark starts a word.
	for start := 0; start < len(text); {
		end := len(text)
		if i := bytes.Index(text[start+1:], m.mark); i >= 0 {
			end = start + 1 + i
		}
		if err := emit(p.from(start, end)); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// metaspaceDecoder turns marks into spaces; those of the first token go, as the encoder may have put them there.
type metaspaceDecoder struct{ *metaspace }

func (d metaspaceDecoder) start(next stage) stage {
	return &metaspaceStage{next: next, mark: d.mark, drop: d.scheme != prependNever}
}

type metaspaceStage struct {
	gather
	next stage
	mark []byte
	drop bool // marks of the piece at hand
	buf  []byte
}

func (s *metaspaceStage) push(part []byte, last bool) {
	token, whole := s.add(part, last)
	if !whole {
		return
	}
	s.buf = s.buf[:0]
	for {
		text, rest, found := bytes.Cut(token, s.mark)
		s.buf = append(s.buf, text...)
		if !found {
			break
		}
		if !s.drop {
			s.buf = append(s.buf, ' ')
		}
		token = rest
	}
	s.drop = false
	s.next.push(s.buf, true)
}

func (s *metaspaceStage) flush() { s.next.flush() }
