package tokenizer

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// golden is one line of what scripts/make_tokenizer_goldens.py writes.
type golden struct {
	Text    string  `json:"text"`
	Plain   []int32 `json:"plain"`   // special tokens taken for text, none added
	Prompt  []int32 `json:"prompt"`  // special tokens parsed, and added; absent: as plain
	Decoded *string `json:"decoded"` // the prompt decoded; absent: as text
}

func readGoldens(t testing.TB, path string) []golden {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	for line := range bytes.Lines(b) {
		var c golden
		if err := jsonio.UnmarshalLoose(path, line, &c); err != nil {
			t.Fatal(err)
		}
		if c.Prompt == nil {
			c.Prompt = c.Plain
		}
		if c.Decoded == nil {
			c.Decoded = &c.Text
		}
		cases = append(cases, c)
	}
	return cases
}

func loadFile(t testing.TB, path string) *Tokenizer {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Load(f, info.Size(), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// tinyTokenizers are the files under testdata/tiny.
func tinyTokenizers(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	paths, err := filepath.Glob("testdata/tiny/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no tokenizers in testdata/tiny (%v)", err)
	}
	toks := map[string]*Tokenizer{}
	for _, path := range paths {
		toks[strings.TrimSuffix(filepath.Base(path), ".json")] = loadFile(t, path)
	}
	return toks
}

func encode(t testing.TB, tok *Tokenizer, text string, opts EncodeOptions) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, opts)
	if err != nil {
		t.Fatalf("Encode(%q): %v", text, err)
	}
	return ids
}

var (
	asPlain  = EncodeOptions{}
	asPrompt = EncodeOptions{AddSpecial: true, ParseSpecial: true}
)

func checkGoldens(t *testing.T, tok *Tokenizer, cases []golden) {
	wrong := 0
	for _, c := range cases {
		plain, prompt := encode(t, tok, c.Text, asPlain), encode(t, tok, c.Text, asPrompt)
		decoded, streamed := tok.Decode(c.Prompt), stream(t, tok, c.Prompt)
		if slices.Equal(plain, c.Plain) && slices.Equal(prompt, c.Prompt) && decoded == *c.Decoded && streamed == decoded {
			continue
		}
		if wrong++; wrong <= 5 {
			t.Errorf("text %q\n plain  %v\n want   %v\n prompt %v\n want   %v\n text   %q\n want   %q\n stream %q",
				c.Text, plain, c.Plain, prompt, c.Prompt, decoded, *c.Decoded, streamed)
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d texts differ from the reference", wrong, len(cases))
	}
}

// stream decodes token by token and checks that what comes is text at any time.
func stream(t testing.TB, tok *Tokenizer, ids []int32) string {
	t.Helper()
	var b strings.Builder
	s := tok.NewStream()
	for _, id := range ids {
		part := s.Push(id)
		if !utf8.ValidString(part) {
			t.Fatalf("Push(%d) gives %q, which is not UTF-8", id, part)
		}
		b.WriteString(part)
	}
	b.WriteString(s.Flush())
	return b.String()
}

func TestGoldens(t *testing.T) {
	for name, tok := range tinyTokenizers(t) {
		t.Run(name, func(t *testing.T) {
			checkGoldens(t, tok, readGoldens(t, "testdata/tiny/"+name+".jsonl"))
		})
	}
}

// TestReference compares real tokenizers with the reference: a folder that make_tokenizer_goldens.py --compare has filled,
// named by TOKENIZER_GOLDENS. Such files are large and under their models' licences, so that none is in the repository.
func TestReference(t *testing.T) {
	dir := os.Getenv("TOKENIZER_GOLDENS")
	if dir == "" {
		t.Skip("TOKENIZER_GOLDENS names no folder of goldens")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens in %s (%v)", dir, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			cases := readGoldens(t, path)
			checkGoldens(t, loadFile(t, strings.TrimSuffix(path, "l")), cases)
			t.Logf("%d texts", len(cases))
		})
	}
}
