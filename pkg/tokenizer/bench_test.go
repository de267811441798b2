package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// benchTokenizer is the tokenizer.json that TOKENIZER_JSON names, else a tiny one.
func benchTokenizer(b *testing.B) *Tokenizer {
	if path := os.Getenv("TOKENIZER_JSON"); path != "" {
		return loadFile(b, path)
	}
	return loadFile(b, "testdata/tiny/smollm.json")
}

// benchText is the text of this package's sources, or of the file that TOKENIZER_TEXT names, about a megabyte.
func benchText(b *testing.B) string {
	paths, _ := filepath.Glob("*.go")
	if path := os.Getenv("TOKENIZER_TEXT"); path != "" {
		paths = []string{path}
	}
	var text strings.Builder
	for _, path := range paths {
		part, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		text.Write(part)
	}
	return strings.Repeat(text.String(), 1+(1<<20)/text.Len())[:1<<20]
}

func BenchmarkEncode(b *testing.B) {
	tok := benchTokenizer(b)
	text := benchText(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tok.Encode(text, EncodeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := benchTokenizer(b)
	text := benchText(b)
	ids := encode(b, tok, text, asPlain)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		tok.Decode(ids)
	}
}

// BenchmarkPreTokenize compares the scanners with the expressions that they stand for.
func BenchmarkPreTokenize(b *testing.B) {
	text := []byte(benchText(b))
	for _, p := range []struct{ name, expr string }{{"gpt2", gpt2Pattern}, {"llama3", llama3Pattern}} {
		slow, err := compileRegex(p.expr)
		if err != nil {
			b.Fatal(err)
		}
		for name, pattern := range map[string]pattern{"scanner": scannerOf(p.expr), "regex": slow} {
			b.Run(p.name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if err := pattern.find(text, func(int, int) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLongWord is the worst case of the merges: one word of a megabyte.
func BenchmarkLongWord(b *testing.B) {
	tok := benchTokenizer(b)
	text := strings.Repeat("a", 1<<20)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		encode(b, tok, text, asPlain)
	}
}

func BenchmarkLoad(b *testing.B) {
	path := os.Getenv("TOKENIZER_JSON")
	if path == "" {
		path = "testdata/tiny/smollm.json"
	}
	b.ReportAllocs()
	for b.Loop() {
		loadFile(b, path)
	}
}
