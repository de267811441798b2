package tokenizer

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"substrate/internal/jsonio"
)

// tinyJSON is a tokenizer.json of a few tokens; tests replace parts of it.
const tinyJSON = `{
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 6, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
  ],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<end>": {"id": "<end>", "ids": [6], "tokens": ["<end>"]}}},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
    "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5},
    "merges": ["a b", "Ġ ab"]}
}`

func TestLoadTiny(t *testing.T) {
	tok, err := LoadBytes([]byte(tinyJSON), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := encode(t, tok, "ab abc", asPrompt), []int32{4, 5, 2, 6}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if id, ok := tok.EOS(); !ok || id != 6 {
		t.Errorf("EOS is %d, %v; want 6 from the template", id, ok)
	}
	if _, ok := tok.BOS(); ok {
		t.Error("there is a BOS")
	}
	if tok.VocabSize() != 7 || tok.Tokens() != 7 {
		t.Errorf("size %d, tokens %d", tok.VocabSize(), tok.Tokens())
	}
	if got := tok.LongestToken(); got != len("<end>") {
		t.Errorf("the longest token has %d bytes", got)
	}
	for id, text := range []string{"a", "b", "c", "Ġ", "ab", "Ġab", "<end>"} {
		got, ok := tok.TokenID(text)
		if !ok || got != int32(id) || tok.TokenText(int32(id)) != text || tok.Special(int32(id)) != (id == 6) {
			t.Errorf("token %d is %q, special %v; %q is %d, %v", id, tok.TokenText(int32(id)), tok.Special(int32(id)), text, got, ok)
		}
	}
	if id, ok := tok.TokenID("abc"); ok {
		t.Errorf("abc is token %d", id)
	}
	for _, id := range []int32{-1, 7, 1 << 30} {
		if got := tok.Decode([]int32{0, id, 1}); got != "ab" || tok.TokenText(id) != "" || tok.Special(id) {
			t.Errorf("id %d decodes to %q", id, got)
		}
	}
}

// TestLoadInAnyOrder reads a file whose merges come before its vocabulary, as when members are sorted.
func TestLoadInAnyOrder(t *testing.T) {
	const vocab = `"vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5}`
	const merges = `"merges": ["a b", "Ġ ab"]`
	sorted := strings.NewReplacer(vocab, merges, merges, vocab).Replace(tinyJSON)
	want, err := LoadBytes([]byte(tinyJSON), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := LoadBytes([]byte(sorted), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest() != want.Digest() {
		t.Error("another tokenizer came of it")
	}
}

func TestLoadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"normalizer":             {`"normalizer": null`, `"normalizer": {"type": "BertNormalizer"}`, []string{`/normalizer/type: `, `"BertNormalizer"`}},
		"map of characters":      {`"normalizer": null`, `"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}`, []string{`/normalizer/precompiled_charsmap: too short`}},
		"nested normalizer":      {`"normalizer": null`, `"normalizer": {"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"X"}]}`, []string{"/normalizer/normalizers/1/type", `"X"`}},
		"pre-tokenizer":          {`{"type": "ByteLevel", "add_prefix_space": false`, `{"type": "Whatever", "add_prefix_space": false`, []string{`/pre_tokenizer/type: `, `"Whatever"`}},
		"post-processor":         {`"TemplateProcessing"`, `"RobertaX"`, []string{"/post_processor/type: ", `"RobertaX"`}},
		"decoder":                {`"decoder": {"type": "ByteLevel"`, `"decoder": {"type": "CTCX"`, []string{"/decoder/type: ", `"CTCX"`}},
		"no type":                {`"normalizer": null`, `"normalizer": {"kind": "NFC"}`, []string{"/normalizer: ", `"type"`}},
		"member of a component":  {`"normalizer": null`, `"normalizer": {"type": "NFC", "form": 2}`, []string{"/normalizer: ", `"form"`}},
		"member of split":        {`"normalizer": null`, `"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b", "count": 1}`, []string{"/normalizer: ", `"count"`}},
		"pattern":                {`"normalizer": null`, `"normalizer": {"type": "Replace", "pattern": {"Regex": "(a"}, "content": "b"}`, []string{"/normalizer/pattern/Regex: "}},
		"construct of a pattern": {`"normalizer": null`, `"normalizer": {"type": "Replace", "pattern": {"Regex": "[a&&b]"}, "content": "b"}`, []string{"/normalizer/pattern/Regex: ", "&&"}},
		"nesting":                {`"normalizer": null`, `"normalizer": ` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 20) + strings.Repeat("]}", 20), []string{"/normalizer/normalizers/0/", "16"}},
		"model":                  {`"type": "BPE"`, `"type": "WordPiece"`, []string{"/model/type: ", `"WordPiece"`}},
		"model of other tokens":  {`"type": "BPE"`, `"type": "Unigram"`, []string{"/model/vocab: ", `"Unigram"`}},
		"member of the model":    {`"fuse_unk": false`, `"fuse_all": false`, []string{"/model/fuse_all: ", `"fuse_all"`}},
		"dropout":                {`"dropout": null`, `"dropout": 0.1`, []string{"/model/dropout: ", "0.1"}},
		"unk":                    {`"unk_token": null`, `"unk_token": "<unk>"`, []string{"/model: ", `"<unk>"`}},
		"version":                {`"version": "1.0"`, `"version": "2.0"`, []string{"/version: ", `"2.0"`}},
		"no vocabulary":          {`"vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5},`, ``, []string{"/model: ", "vocabulary"}},
		"no merges":              {`"merges": ["a b", "Ġ ab"]`, `"merges": null`, []string{"/model: ", "merges"}},
		"two vocabularies":       {`"merges"`, `"vocab": {}, "merges"`, []string{"second vocabulary"}},
		"two lists of merges":    {`"merges": [`, `"merges": ["a b"], "merges": [`, []string{"second list"}},
		"id twice":               {`"b": 1`, `"b": 0`, []string{"/model/vocab", `id 0`, `"a"`, `"b"`}},
		"token twice":            {`"b": 1`, `"b": 1, "b": 9`, []string{"/model/vocab", `"b"`, "1", "9"}},
		"empty token":            {`"b": 1`, `"": 1`, []string{"/model/vocab", "empty"}},
		"negative id":            {`"b": 1`, `"b": -1`, []string{"/model/vocab/b", "-1"}},
		"high id":                {`"b": 1`, `"b": 16777215`, []string{"/model/vocab", "16777215"}},
		"absurd id":              {`"b": 1`, `"b": 99999999999`, []string{"/model/vocab/b", "99999999999"}},
		"fraction for an id":     {`"b": 1`, `"b": 1.5`, []string{"/model/vocab/b", "1.5"}},
		"text for an id":         {`"b": 1`, `"b": "1"`, []string{"/model/vocab/b", "string"}},
		"merge of nothing":       {`"a b"`, `"a d"`, []string{"/model/merges/0", `"d"`}},
		"merge to nothing":       {`"a b"`, `"b a"`, []string{"/model/merges/0", `"ba"`}},
		"merge of three":         {`"a b"`, `"a b c"`, []string{"/model/merges/0", `"a b c"`}},
		"merge of one":           {`"a b"`, `["a"]`, []string{"/model/merges/0", "1 parts"}},
		"added over a token":     {`"id": 6`, `"id": 2`, []string{"/added_tokens: ", `"<end>"`, `"c"`}},
		"added with another id":  {`"content": "<end>"`, `"content": "ab"`, []string{"/added_tokens: ", `"ab"`, "6", "4"}},
		"empty added":            {`"content": "<end>"`, `"content": ""`, []string{"/added_tokens: ", "6"}},
		"template":               {`{"SpecialToken": {"id": "<end>", "type_id": 0}}`, `{"SpecialToken": {"id": "<eos>", "type_id": 0}}`, []string{"/post_processor/single/1", `"<eos>"`}},
		"id of a template":       {`"ids": [6]`, `"ids": [7]`, []string{"/post_processor: ", "7"}},
		"no text in a template":  {`"single": [{"Sequence": {"id": "A", "type_id": 0}}, `, `"single": [`, []string{"/post_processor/single: "}},
		"trailing text":          {"\"Ġ ab\"]}\n}", "\"Ġ ab\"]}\n} {}", []string{"follows"}},
		"cut off":                {"\"Ġ ab\"]}\n}", "\"Ġ a", []string{"ends"}},
		"not an object":          {`{` + "\n" + `  "version"`, `[{"version"`, []string{"array", "object"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(tinyJSON, c.old, c.new, 1)
			if text == tinyJSON {
				t.Fatal("the case changes nothing")
			}
			_, err := LoadBytes([]byte(text), "t.json")
			if err == nil {
				t.Fatal("it loads")
			}
			for _, part := range append(c.want, "t.json: ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
	for _, text := range []string{"", "null", "{}", "\x00\xff", strings.Repeat("[", 1<<16)} {
		if _, err := LoadBytes([]byte(text), "t.json"); err == nil {
			t.Errorf("%.20q loads", text)
		}
	}
}

// TestReadErrors lets the file fail under the loader.
func TestReadErrors(t *testing.T) {
	r := failingReaderAt{[]byte(tinyJSON), 200}
	_, err := Load(r, int64(len(tinyJSON)), "t.json")
	if _, document := errors.AsType[*jsonio.Error](err); document || !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("got %v, which should be the reader's error and none of the document", err)
	}
}

type failingReaderAt struct {
	b     []byte
	after int64
}

func (r failingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > r.after {
		return max(0, copy(p, r.b[min(off, r.after):r.after])), iotest.ErrTimeout
	}
	return copy(p, r.b[off:]), nil
}

func TestWriteJSON(t *testing.T) {
	toks := tinyTokenizers(t)
	tiny, err := LoadBytes([]byte(tinyJSON), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	toks["constant"] = tiny
	digests := map[string]string{}
	for name, tok := range toks {
		var first, second bytes.Buffer
		if err := tok.WriteJSON(&first); err != nil {
			t.Fatal(err)
		}
		again, err := LoadBytes(first.Bytes(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.WriteJSON(&second); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: written again it differs", name)
		}
		if other, ok := digests[tok.Digest()]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		digests[tok.Digest()] = name
		if name != "constant" {
			checkGoldens(t, again, readGoldens(t, "testdata/tiny/"+name+".jsonl"))
		}
	}
}

func TestWriteJSONReportsErrors(t *testing.T) {
	tok := loadFile(t, "testdata/tiny/smollm.json")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	if err := tok.WriteJSON(full); err == nil {
		t.Error("a full disk goes unnoticed")
	}
}

func FuzzLoad(f *testing.F) {
	// Seeds are small; the tiny tokenizers would leave no time for anything but reading them.
	f.Add([]byte(tinyJSON))
	for _, r := range []*strings.Replacer{
		strings.NewReplacer(`"normalizer": null`, `"normalizer": {"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},
			{"type":"Prepend","prepend":"a"},{"type":"Replace","pattern":{"Regex":"b+"},"content":"c"},{"type":"Strip","strip_left":true,"strip_right":true}]}`),
		strings.NewReplacer(`"pre_tokenizer": {`, `"pre_tokenizer": {"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
			{"type":"Split","pattern":{"Regex":"(?i:'s)|\\p{L}+"},"behavior":"MergedWithNext","invert":true}]}, "before": {`),
		strings.NewReplacer(`"decoder": {`, `"decoder": {"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"a"},"content":""},
			{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":"b","start":1,"stop":1}]}, "before": {`),
		strings.NewReplacer(`"byte_fallback": false`, `"byte_fallback": true`, `"unk_token": null`, `"unk_token": "a"`, `"end_of_word_suffix": null`, `"end_of_word_suffix": "b"`),
		strings.NewReplacer(`"special": true`, `"special": false, "lstrip": true`, `"normalized": false`, `"normalized": true`, `"ignore_merges": false`, `"ignore_merges": true`),
	} {
		f.Add([]byte(r.Replace(tinyJSON)))
	}
	f.Add([]byte(`{"version":"1.0","added_tokens":[],"normalizer":{"type":"Nmt"},"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581",
		"prepend_scheme":"first","split":false},"decoder":{"type":"Metaspace","replacement":"\u2581"},"post_processor":{"type":"RobertaProcessing",
		"sep":["a",1],"cls":["b",2]},"model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["?",0],["a",-1.5],["b",-2],["\u2581a",-3]]}}`))
	f.Add([]byte(`{"model":{"vocab":{"a":0},"merges":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := LoadBytes(b, "t.json")
		if err != nil {
			return
		}
		var written bytes.Buffer
		if err := tok.WriteJSON(&written); err != nil {
			t.Fatal(err)
		}
		again, err := LoadBytes(written.Bytes(), "t.json")
		if err != nil {
			t.Fatalf("what was written does not load: %v\n%s", err, written.Bytes())
		}
		if again.Digest() != tok.Digest() {
			t.Fatal("what was written loads as another tokenizer")
		}
		text := "a ab abc <end> é\n12"
		ids, err := tok.Encode(text, asPrompt)
		if err != nil {
			return // a pattern that takes too long
		}
		if got := stream(t, tok, ids); got != tok.Decode(ids) {
			t.Fatalf("streamed %q, decoded %q", got, tok.Decode(ids))
		}
	})
}

// FuzzComponents fuzzes the components of a valid file, where random bytes seldom leave a whole file valid, and a text for
// it.
func FuzzComponents(f *testing.F) {
	const byteLevel = `{"type":"ByteLevel"}`
	f.Add("null", byteLevel, "null", byteLevel, "", "ab abc<end>")
	f.Add(`{"type":"NFC"}`, `{"type":"Digits","individual_digits":true}`, byteLevel, `{"type":"Fuse"}`, `"unk_token":"a",`, "a1b22")
	f.Add(`{"type":"Replace","pattern":{"Regex":"(a|b)+?c"},"content":"ab"}`,
		`{"type":"Split","pattern":{"String":"b"},"behavior":"MergedWithPrevious","invert":true}`, "null",
		`{"type":"Strip","content":"a","start":1,"stop":2}`, `"end_of_word_suffix":"b",`, "aabbcc")
	f.Add(`{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"b"},{"type":"Strip","strip_left":true,"strip_right":true}]}`,
		`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Split","pattern":{"Regex":"\\s"},"behavior":"Contiguous"}]}`, "null",
		`{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"a"},"content":""},{"type":"ByteFallback"}]}`,
		`"byte_fallback":true,"fuse_unk":true,"unk_token":"c",`, " a \u00e9\n b ")
	f.Add(`{"type":"Sequence","normalizers":[{"type":"StripAccents"},{"type":"ByteLevel"},{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAA="}]}`,
		`{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"_","add_prefix_space":false},{"type":"Whitespace"},
		{"type":"Punctuation","behavior":"Contiguous"},{"type":"CharDelimiterSplit","delimiter":"b"}]}`,
		`{"type":"BertProcessing","sep":["a",0],"cls":["b",1]}`, `{"type":"Metaspace","replacement":"_"}`, "", "a_b \u0301c")
	f.Fuzz(func(t *testing.T, normalizer, pre, post, decoder, members, text string) {
		file := `{"added_tokens":[{"id":6,"content":"<end>","special":true,"lstrip":true}],"normalizer":` + normalizer +
			`,"pre_tokenizer":` + pre + `,"post_processor":` + post + `,"decoder":` + decoder + `,"model":{` + members +
			`"vocab":{"a":0,"b":1,"c":2,"\u0120":3,"ab":4,"\u0120ab":5},"merges":["a b","\u0120 ab"]}}`
		tok, err := LoadBytes([]byte(file), "t.json")
		if err != nil {
			return
		}
		ids, err := tok.Encode(text, asPrompt)
		if err != nil {
			return // a pattern that takes too long
		}
		if got := stream(t, tok, ids); got != tok.Decode(ids) {
			t.Fatalf("streamed %q, decoded %q", got, tok.Decode(ids))
		}
		var written bytes.Buffer
		if err := tok.WriteJSON(&written); err != nil {
			t.Fatal(err)
		}
		again, err := LoadBytes(written.Bytes(), "t.json")
		if err != nil {
			t.Fatalf("what was written does not load: %v\n%s", err, written.Bytes())
		}
		if same, err := again.Encode(text, asPrompt); err != nil || !slices.Equal(same, ids) {
			t.Fatalf("what was written gives %v, %v, not %v", same, err, ids)
		}
	})
}
