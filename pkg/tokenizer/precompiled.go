package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"unicode"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// precompiled is a normalizer of SentencePiece: a map from texts to texts, kept as a double array (Aoe: An Efficient
// Digital Search Algorithm by Using a Double-Array Structure, 1989) over the keys and a blob of values that end with 0.
//
// The reference takes it by grapheme clusters: one of less than 6 bytes that begins with a key becomes the value of its
// shortest key, all of it; others are mapped character by character.
type precompiled struct {
	units  []uint32
	values []byte
	ascii  [utf8.RuneSelf]mapped // for text that is mostly such
}

// mapped is the value of a key, if it has one.
type mapped struct {
	value []byte
	ok    bool
}

const longestCluster = 5 // bytes of one that is mapped as a whole

func newPrecompiled(raw jsonio.RawValue) (normalizer, error) {
	var c struct {
		typed
		Map string `json:"precompiled_charsmap"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	fault := func(reason string) (normalizer, error) {
		return nil, jsonio.Errorf("", "/precompiled_charsmap", "%s", reason)
	}
	b, err := base64.StdEncoding.DecodeString(c.Map)
	if err != nil {
		return fault(err.Error())
	}
	if len(b) < 4 {
		return fault("too short")
	}
	size := binary.LittleEndian.Uint32(b)
	if b = b[4:]; size%4 != 0 || int64(size) > int64(len(b)) {
		return fault("the array of keys is cut off")
	}
	p := &precompiled{units: make([]uint32, size/4), values: b[size:]}
	for i := range p.units {
		p.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	if !utf8.Valid(p.values) {
		return fault("the values are not UTF-8")
	}
	for i := range p.ascii {
		p.ascii[i].value, p.ascii[i].ok = p.lookup([]byte{byte(i)})
	}
	return p, nil
}

// lookup returns the value of the shortest key that text begins with.
func (p *precompiled) lookup(text []byte) (value []byte, ok bool) {
	at := uint32(0)
	unit, ok := p.unit(at)
	if !ok {
		return nil, false
	}
	at ^= offset(unit)
	for _, c := range text {
		if c == 0 {
			return nil, false
		}
		at ^= uint32(c)
		if unit, ok = p.unit(at); !ok || unit&(1<<31|0xff) != uint32(c) {
			return nil, false
		}
		at ^= offset(unit)
		if unit>>8&1 == 0 {
			continue // no key ends here
		}
		leaf, ok := p.unit(at)
		start := leaf & (1<<31 - 1)
		if !ok || int64(start) > int64(len(p.values)) {
			return nil, false
		}
		value = p.values[start:]
		for i, c := range value {
			if c == 0 {
				return value[:i], true
			}
		}
		return value, true
	}
	return nil, false
}

func (p *precompiled) unit(at uint32) (uint32, bool) {
	if int64(at) >= int64(len(p.units)) {
		return 0, false
	}
	return p.units[at], true
}

// offset is how far a node's children are from it.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

func (p *precompiled) normalize(text []byte) ([]byte, error) {
	before := len(text)
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 {
		n := 1
		if text[0] >= utf8.RuneSelf || len(text) > 1 && (text[1] >= utf8.RuneSelf || text[0] == '\r') {
			n = clusterLen(text)
		}
		cluster := text[:n]
		text = text[n:]
		if n == 1 {
			out = p.append(out, cluster)
		} else if value, ok := p.lookup(cluster); ok && n <= longestCluster {
			out = append(out, value...)
		} else {
			for len(cluster) > 0 {
				_, size := utf8.DecodeRune(cluster)
				out = p.append(out, cluster[:size])
				cluster = cluster[size:]
			}
		}
		if err := checkGrowth(before, len(out)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// append appends one character, mapped.
func (p *precompiled) append(out, char []byte) []byte {
	if char[0] < utf8.RuneSelf {
		if m := &p.ascii[char[0]]; m.ok {
			return append(out, m.value...)
		}
		return append(out, char[0])
	}
	if value, ok := p.lookup(char); ok {
		return append(out, value...)
	}
	return append(out, char...)
}

// clusterLen is the length of the grapheme cluster that text begins with, by the rules of UAX #29 that can make clusters of
// less than 6 bytes: those for Hangul, emoji and conjuncts take more, and then characters are mapped one by one anyway.
func clusterLen(text []byte) int {
	r, at := utf8.DecodeRune(text)
	switch {
	case r == '\r' && at < len(text) && text[at] == '\n':
		return 2
	case isControl(r):
		return at
	}
	prepended := isPrepend(r)
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		switch {
		case isControl(r):
			return at
		case isExtend(r) || isSpacingMark(r):
			prepended = false
		case prepended:
			prepended = isPrepend(r)
		default:
			return at
		}
		at += size
	}
	return at
}

func isControl(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) ||
		unicode.Is(unicode.Cf, r) && !isExtend(r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// isExtend is Grapheme_Extend, the modifiers of emoji and the joiner.
func isExtend(r rune) bool {
	return r >= 0x300 && (unicode.In(r, unicode.Mn, unicode.Me, unicode.Other_Grapheme_Extend) || r >= 0x1f3fb && r <= 0x1f3ff || r == 0x200d)
}

// isSpacingMark is SpacingMark of UAX #29, table 2.
func isSpacingMark(r rune) bool {
	switch {
	case r == 0x0e33, r == 0x0eb3:
		return true
	case !unicode.Is(unicode.Mc, r), unicode.Is(unicode.Other_Grapheme_Extend, r):
		return false
	case r == 0x102b, r == 0x102c, r == 0x1038, r >= 0x1062 && r <= 0x1064, r >= 0x1067 && r <= 0x106d, r == 0x1083,
		r >= 0x1087 && r <= 0x108c, r == 0x108f, r >= 0x109a && r <= 0x109c, r == 0x1a61, r == 0x1a63, r == 0x1a64,
		r == 0xaa7b, r == 0xaa7d, r == 0x11720, r == 0x11721:
		return false
	}
	return true
}

// isPrepend is Prepend of UAX #29, table 2.
func isPrepend(r rune) bool {
	switch r {
	case 0x0d4e, 0x111c2, 0x111c3, 0x1193f, 0x11941, 0x11a3a, 0x11d46, 0x11f02:
		return true
	}
	return r >= 0x11a84 && r <= 0x11a89 || unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}
