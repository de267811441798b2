package tokenizer

import (
	"errors"
	"strings"
	"testing"

	"substrate/internal/jsonio"
)

// TestNormalizers gives the reference's results, tokenizers 0.23.3.
func TestNormalizers(t *testing.T) {
	for _, c := range []struct{ normalizer, text, want string }{
		{`{"type":"NFC"}`, "e\u0301 \u212B", "\u00E9 \u00C5"},
		{`{"type":"NFD"}`, "\u00E9", "e\u0301"},
		{`{"type":"NFKC"}`, "\uFB01 \u2460 \u00BD", "fi 1 1\u20442"},
		{`{"type":"NFKD"}`, "\uFB01\u00E9", "fie\u0301"},
		{`{"type":"Lowercase"}`, "STRASSE \u0130\u03A3 \u1E9E", "strasse i\u0307\u03C3 \u00DF"},
		{`{"type":"Strip","strip_left":true,"strip_right":false}`, "\u3000 a ", "a "},
		{`{"type":"Strip","strip_left":false,"strip_right":true}`, " a\n\u0085", " a"},
		{`{"type":"Prepend","prepend":"_"}`, "a", "_a"},
		{`{"type":"Prepend","prepend":"_"}`, "", ""},
		{`{"type":"Replace","pattern":{"String":"aa"},"content":"b"}`, "aaaca", "baca"},
		{`{"type":"Replace","pattern":{"Regex":"^a|b$"},"content":"_"}`, "ab\nab", "__\n__"},
		{`{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":" "},"content":"_"},{"type":"Prepend","prepend":"_"}]}`, "a b", "_a_b"},
		{`{"type":"Sequence","normalizers":[]}`, "a", "a"},
	} {
		n, err := newNormalizer(jsonio.RawValue(c.normalizer), 0)
		if err != nil {
			t.Errorf("%s: %v", c.normalizer, err)
			continue
		}
		text := []byte(c.text)
		got, err := n.normalize(text)
		if err != nil || string(got) != c.want {
			t.Errorf("%s of %q is %q, %v, want %q", c.normalizer, c.text, got, err, c.want)
		}
		if string(text) != c.text {
			t.Errorf("%s changed its argument", c.normalizer)
		}
	}
}

func TestHostileNormalizers(t *testing.T) {
	double := `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	for name, normalizer := range map[string]string{
		"again and again": `{"type":"Sequence","normalizers":[` + strings.Repeat(double+",", 60) + double + `]}`,
		"at once":         `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("b", 1<<16) + `"}`,
	} {
		n, err := newNormalizer(jsonio.RawValue(normalizer), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.normalize([]byte(strings.Repeat("a", 10))); err == nil || !strings.Contains(err.Error(), "normalizing makes more than") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestHostilePattern stops an expression that would backtrack for longer than the world stands.
func TestHostilePattern(t *testing.T) {
	re, err := compileRegex(`(?:(?:a|aa)+)+!`)
	if err != nil {
		t.Fatal(err)
	}
	re.re.MatchTimeout /= 50
	err = re.find([]byte(strings.Repeat("a", 1000)), func(int, int) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "pre-tokenizing 1000 bytes with") || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}

// TestHostileEncode: that a text cannot be encoded is the fault of the tokenizer's file, which decides the exit code.
func TestHostileEncode(t *testing.T) {
	text := `{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"` +
		strings.Repeat("a", 1<<16) + `"}}`
	tok, err := LoadBytes([]byte(text), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	_, err = tok.Encode("aaaaaaaaaa", EncodeOptions{})
	if document, ok := errors.AsType[*jsonio.Error](err); !ok || !strings.HasPrefix(document.Error(), "tokenizer: normalizing makes more than") {
		t.Errorf("got %v", err)
	}
}
