package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

func TestStreamHoldsIncompleteCharacters(t *testing.T) {
	tok := loadFile(t, "testdata/tiny/smollm.json")
	s := tok.NewStream()
	var parts []string
	for _, b := range []byte("a\u00e9\U0001F600b") {
		id, ok := tok.TokenID(string(byteChar(b)))
		if !ok {
			t.Fatalf("byte %#x has no token", b)
		}
		parts = append(parts, s.Push(id))
	}
	parts = append(parts, s.Flush())
	if got, want := strings.Join(parts, "|"), "a||\u00e9||||\U0001F600|b|"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestInvalidUTF8 gives one U+FFFD for as much as may have started a character, as the examples of Unicode 3.9 (table 3-8
// and others) do, and whatever the steps in which the bytes come.
func TestInvalidUTF8(t *testing.T) {
	tok := loadFile(t, "testdata/tiny/smollm.json")
	const r = "\uFFFD"
	for text, want := range map[string]string{
		"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64": "a" + r + r + r + "b" + r + "c" + r + r + "d",
		"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41":                 strings.Repeat(r, 8) + "A",
		"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41":                 strings.Repeat(r, 8) + "A",
		"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42":                 strings.Repeat(r, 5) + "A" + r + r + "B",
		"\xE2\x82":                                             r,
		"\xF0\x9F\x98":                                         r,
		"\xF0\x9F\x98x":                                        r + "x",
		"\xFF":                                                 r,
		"\xE2\x82\xAC":                                         "\u20AC",
	} {
		var ids []int32
		for _, b := range []byte(text) {
			id, _ := tok.TokenID(string(byteChar(b)))
			ids = append(ids, id)
		}
		if got := tok.Decode(ids); got != want {
			t.Errorf("%x decodes to %q, want %q", text, got, want)
		}
		if got := stream(t, tok, ids); got != want {
			t.Errorf("%x streams as %q, want %q", text, got, want)
		}
	}
}

func TestFlushStartsAnew(t *testing.T) {
	tok := loadFile(t, "testdata/tiny/llama2.json") // takes one space off the start
	id, ok := tok.TokenID(spaceMark)
	if !ok {
		t.Fatal("no token of a space")
	}
	s := tok.NewStream()
	for range 2 {
		if got := s.Push(id) + s.Push(id) + s.Flush(); got != " " {
			t.Errorf("got %q, want one space", got)
		}
	}
}

// TestDecoders runs decoders over pieces of text. Expected values are those of the reference, tokenizers 0.23.3.
func TestDecoders(t *testing.T) {
	for _, c := range []struct {
		decoder string
		tokens  []string
		want    string
	}{
		{`{"type":"Fuse"}`, []string{"a", "b"}, "ab"},
		{`{"type":"Strip","content":"x","start":2,"stop":1}`, []string{"xxxaxx", "axb", "bx"}, "xaxaxbb"},
		{`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":"x","start":2,"stop":2}]}`, []string{"x", "xx", "a", "x", "b", "x", "x", "x"}, "xaxbx"},
		{`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"ab"},"content":"c"}]}`, []string{"a", "b", "a"}, "ca"},
		{`{"type":"Replace","pattern":{"String":"ab"},"content":"c"}`, []string{"a", "b", "ab"}, "abc"},
		{`{"type":"ByteFallback"}`, []string{"<0xE2>", "<0x82>", "<0xAC>", "a", "<0xE2>", "<0x82>", "b", "<0x41>"}, "\u20ACa\uFFFD\uFFFDbA"},
		{`{"type":"ByteFallback"}`, []string{"<0x4>", "<0x4g>", "<0x+F>", "<0X41>"}, "<0x4><0x4g>\x0f<0X41>"},
		{`{"type":"ByteLevel"}`, []string{"\u0120a", "\u0101", "a b", "\u20AC"}, " a\x01a b\u20AC"},
		{`{"type":"Sequence","decoders":[]}`, []string{"a", "b"}, "ab"},
	} {
		d, err := newDecoder(jsonio.RawValue(c.decoder), 0)
		if err != nil {
			t.Errorf("%s: %v", c.decoder, err)
			continue
		}
		var out textStage
		chain := d.start(&out)
		for _, token := range c.tokens {
			chain.push([]byte(token), true)
		}
		chain.flush()
		out.flush()
		if got := out.take(); got != c.want {
			t.Errorf("%s of %q is %q, want %q", c.decoder, c.tokens, got, c.want)
		}
	}
	var out textStage
	chain := spaced{}.start(&out)
	chain.push([]byte("a"), true)
	chain.push([]byte("b"), true)
	chain.flush()
	if got := out.take(); got != "a b" {
		t.Errorf("without a decoder: %q", got)
	}
}

// FuzzRoundTrip encodes any bytes by byte-level tokenizers, which lose nothing, and decodes them whole and streamed.
func FuzzRoundTrip(f *testing.F) {
	tiny := tinyTokenizers(f)
	for _, s := range []string{"", "Hello, world!", " \n\t", "<|im_start|>user\nhi<|im_end|>", "caf\u00e9 \U0001F600", "\xff\x00\xe2\x82", "\u0120the"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"smollm", "llama3", "falcon"} {
			tok := tiny[name]
			for _, opts := range []EncodeOptions{asPlain, {ParseSpecial: true}} {
				ids := encode(t, tok, text, opts)
				for _, id := range ids {
					if id < 0 || int(id) >= tok.VocabSize() || tok.TokenText(id) == "" {
						t.Fatalf("%s: %q gives the id %d of no token", name, text, id)
					}
					if opts == asPlain && tok.Special(id) {
						t.Fatalf("%s: %q as plain text gives the special token %q", name, text, tok.TokenText(id))
					}
				}
				var raw strings.Builder
				for _, id := range ids {
					raw.WriteString(tokenBytes(tok, id))
				}
				if name != "falcon" || utf8.ValidString(text) { // its patterns see characters in the middle
					if raw.String() != text {
						t.Fatalf("%s: %q comes back as %q", name, text, raw.String())
					}
				}
				if utf8.ValidString(text) {
					if got := tok.Decode(ids); got != text {
						t.Fatalf("%s: %q decodes to %q", name, text, got)
					}
				}
				if got := stream(t, tok, ids); got != tok.Decode(ids) {
					t.Fatalf("%s: streamed %q, decoded %q", name, got, tok.Decode(ids))
				}
			}
		}
	})
}

// tokenBytes are the bytes that a token of a byte-level tokenizer stands for.
func tokenBytes(tok *Tokenizer, id int32) string {
	text := []byte(tok.TokenText(id))
	if b, ok := appendCharBytes(nil, text); ok {
		return string(b)
	}
	return string(text)
}
