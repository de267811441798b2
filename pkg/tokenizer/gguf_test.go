package tokenizer

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"substrate/internal/jsonio"
)

// ggufOf is the vocabulary that a converter would write for a tokenizer.
func ggufOf(tok *Tokenizer, pre string) Vocab {
	b := tok.model.(*bpe)
	v := Vocab{Model: "gpt2", Pre: pre, BOS: -1, EOS: -1, UNK: -1, PAD: -1}
	for id := range int32(tok.VocabSize()) {
		typ := int32(tokenNormal)
		if a := tok.addedByID(id); a != nil {
			typ = tokenUserDefined
			if a.Special {
				typ = tokenControl
			}
		}
		v.Tokens = append(v.Tokens, tok.TokenText(id))
		v.TokenTypes = append(v.TokenTypes, typ)
	}
	for _, m := range b.merges.list {
		v.Merges = append(v.Merges, fmt.Sprintf("%s %s", b.vocab.token(m.left), b.vocab.token(m.right)))
	}
	if len(tok.before) == 1 {
		v.BOS, v.AddBOS = tok.before[0], true
	}
	if len(tok.after) == 1 {
		v.EOS, v.AddEOS = tok.after[0], true
	}
	return v
}

// TestFromGGUF compares a GGUF's vocabulary with the tokenizer.json that it would be made from, and what is written of it
// with both.
func TestFromGGUF(t *testing.T) {
	for name, pre := range map[string]string{"smollm": "smollm", "llama3": "llama-bpe"} {
		v := ggufOf(loadFile(t, "testdata/tiny/"+name+".json"), pre)
		tok, err := FromGGUF(v)
		if err != nil {
			t.Fatal(err)
		}
		goldens := readGoldens(t, "testdata/tiny/"+name+".jsonl")
		checkGoldens(t, tok, goldens)

		var written bytes.Buffer
		if err := tok.WriteJSON(&written); err != nil {
			t.Fatal(err)
		}
		again, err := LoadBytes(written.Bytes(), "tokenizer.json")
		if err != nil {
			t.Fatal(err)
		}
		checkGoldens(t, again, goldens)
		if again.Digest() != tok.Digest() {
			t.Errorf("%s: the tokenizer.json written has another digest than the GGUF", name)
		}
		if again.before == nil != (tok.before == nil) || !slices.Equal(again.before, tok.before) {
			t.Errorf("%s: BOS %v was written as %v", name, tok.before, again.before)
		}
	}
}

// TestFromGGUFSentencePiece compares a vocabulary with scores with SentencePiece itself.
func TestFromGGUFSentencePiece(t *testing.T) {
	var golden struct {
		Tokens []string  `json:"tokens"`
		Scores []float64 `json:"scores"`
		Types  []int32   `json:"types"`
		UNK    int32     `json:"unk"`
		BOS    int32     `json:"bos"`
		EOS    int32     `json:"eos"`
		Cases  []struct {
			Text    string  `json:"text"`
			IDs     []int32 `json:"ids"`
			Decoded string  `json:"decoded"`
		} `json:"cases"`
	}
	const path = "testdata/spm.json"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := jsonio.UnmarshalLoose(path, b, &golden); err != nil {
		t.Fatal(err)
	}
	v := Vocab{Model: "llama", Tokens: golden.Tokens, TokenTypes: golden.Types, UNK: golden.UNK, BOS: golden.BOS, EOS: golden.EOS, PAD: -1, AddBOS: true}
	for _, s := range golden.Scores {
		v.Scores = append(v.Scores, float32(s))
	}
	tok, err := FromGGUF(v)
	if err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) < 100 {
		t.Fatalf("%d texts", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		got := encode(t, tok, c.Text, asPlain)
		if !slices.Equal(got, c.IDs) {
			t.Errorf("%q: got %v, want %v", c.Text, got, c.IDs)
		}
		if back := tok.Decode(got); back != c.Decoded {
			t.Errorf("%v: decoded as %q, want %q", got, back, c.Decoded)
		}
		if prompt := encode(t, tok, c.Text, EncodeOptions{AddSpecial: true}); prompt[0] != golden.BOS || !slices.Equal(prompt[1:], got) {
			t.Errorf("%q: prompt %v", c.Text, prompt)
		}
	}
	for what, edit := range map[string]func(*Vocab){
		"scores missing": func(v *Vocab) { v.Scores = nil },
		"not a number":   func(v *Vocab) { v.Scores = slices.Clone(v.Scores); v.Scores[len(v.Scores)-1] = float32(math.NaN()) },
		"types missing":  func(v *Vocab) { v.TokenTypes = nil },
		"a long token": func(v *Vocab) {
			v.Tokens = slices.Clone(v.Tokens)
			v.Tokens[len(v.Tokens)-1] = strings.Repeat("ab", 600)
		},
	} {
		bad := v
		edit(&bad)
		if _, err := FromGGUF(bad); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestGGUFStyles(t *testing.T) {
	tiny := loadFile(t, "testdata/tiny/qwen2.json")
	for _, s := range styles() {
		for _, pre := range s.names {
			tok, err := FromGGUF(ggufOf(tiny, pre))
			if err != nil {
				t.Errorf("%q: %v", pre, err)
				continue
			}
			if got := tok.Decode(encode(t, tok, "It's 2024, isn't it?", asPlain)); got != "It's 2024, isn't it?" {
				t.Errorf("%q: comes back as %q", pre, got)
			}
			var written bytes.Buffer
			if err := tok.WriteJSON(&written); err != nil {
				t.Fatal(err)
			}
			if again, err := LoadBytes(written.Bytes(), pre); err != nil || again.Digest() != tok.Digest() {
				t.Errorf("%q: what is written does not read the same: %v", pre, err)
			}
		}
	}
	// Qwen 2 normalizes and has each digit by itself, GPT-2 does neither.
	qwen, _ := FromGGUF(ggufOf(tiny, "qwen2"))
	gpt2, _ := FromGGUF(ggufOf(tiny, "gpt-2"))
	if a, b := encode(t, qwen, "u\u0308", asPlain), encode(t, gpt2, "u\u0308", asPlain); slices.Equal(a, b) {
		t.Errorf("both give %v", a)
	}
}

func TestGGUFRoles(t *testing.T) {
	v := ggufOf(loadFile(t, "testdata/tiny/smollm.json"), "smollm")
	v.BOS, v.EOS, v.UNK, v.PAD = 1, 2, 0, 2
	v.AddEOS = true
	tok, err := FromGGUF(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Roles(); got != (Roles{BOS: 1, EOS: 2, UNK: 0, PAD: 2}) {
		t.Errorf("roles %+v", got)
	}
	ids := encode(t, tok, "a", asPrompt)
	if len(ids) != 2 || ids[1] != 2 {
		t.Errorf("%v should end with EOS only", ids)
	}
	for text, special := range map[string]bool{"<|im_start|>": true, "a": false} {
		id, ok := tok.TokenID(text)
		if !ok || tok.Special(id) != special {
			t.Errorf("%q is token %d, %v, special %v", text, id, ok, tok.Special(id))
		}
	}
}

func TestGGUFErrors(t *testing.T) {
	good := func() Vocab { return ggufOf(loadFile(t, "testdata/tiny/smollm.json"), "smollm") }
	for name, c := range map[string]struct {
		change func(*Vocab)
		want   []string
	}{
		"model":      {func(v *Vocab) { v.Model = "rwkv" }, []string{"/model", `"rwkv"`}},
		"pre":        {func(v *Vocab) { v.Pre = "tekken" }, []string{"/pre", `"tekken"`, "smollm"}},
		"types":      {func(v *Vocab) { v.TokenTypes = v.TokenTypes[1:] }, []string{"/token_type"}},
		"type":       {func(v *Vocab) { v.TokenTypes[3] = 9 }, []string{"/token_type/3", "9"}},
		"token":      {func(v *Vocab) { v.Tokens[5] = v.Tokens[6] }, []string{"/tokens", "5", "6"}},
		"UTF-8":      {func(v *Vocab) { v.Tokens[5] = "\xff" }, []string{"/tokens", "token 5"}},
		"no token":   {func(v *Vocab) { v.Tokens[5] = "" }, []string{"/tokens", "5"}},
		"merge":      {func(v *Vocab) { v.Merges[2] = "ab" }, []string{"/merges", "merge 2", `"ab"`}},
		"merge of":   {func(v *Vocab) { v.Merges[2] = "a zzz" }, []string{"/merges", "merge 2", `"zzz"`}},
		"BOS":        {func(v *Vocab) { v.BOS = 1 << 20 }, []string{"/bos_token_id", "1048576"}},
		"EOS":        {func(v *Vocab) { v.EOS = -2 }, []string{"/eos_token_id", "-2"}},
		"no BOS":     {func(v *Vocab) { v.AddBOS = true }, []string{"/bos_token_id"}},
		"no tokens":  {func(v *Vocab) { *v = Vocab{Model: "gpt2", Pre: "smollm", BOS: 0, EOS: -1, UNK: -1, PAD: -1} }, []string{"/bos_token_id"}},
		"long token": {func(v *Vocab) { v.Tokens[1] = strings.Repeat("x", 1<<17) }, []string{"id 1", "bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := good()
			c.change(&v)
			_, err := FromGGUF(v)
			if err == nil {
				t.Fatal("it loads")
			}
			for _, part := range append(c.want, "tokenizer.ggml: ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

func FuzzFromGGUF(f *testing.F) {
	f.Add("gpt2", "smollm", "a\nb\n\u0120\nab\n<e>", "\x01\x01\x01\x01\x03", "a b\n", int32(4), true)
	f.Add("gpt2", "", "", "", "", int32(-1), false)
	f.Add("llama", "", "?\n<0x41>\na\nb\nab\n\u2581ab", "\x02\x06\x01\x01\x01\x01", "", int32(0), true)
	f.Fuzz(func(t *testing.T, model, pre, tokens, types, merges string, bos int32, add bool) {
		v := Vocab{Model: model, Pre: pre, BOS: bos, EOS: bos, UNK: -1, PAD: -1, AddBOS: add, AddEOS: add}
		v.Tokens = strings.Split(tokens, "\n")
		v.Merges = strings.Split(strings.TrimSuffix(merges, "\n"), "\n")
		if merges == "" {
			v.Merges = nil
		}
		for _, typ := range []byte(types) {
			v.TokenTypes = append(v.TokenTypes, int32(typ))
		}
		if model == "llama" {
			for i := range v.Tokens {
				v.Scores = append(v.Scores, -float32(i))
			}
		}
		tok, err := FromGGUF(v)
		if err != nil {
			return
		}
		var written bytes.Buffer
		if err := tok.WriteJSON(&written); err != nil {
			t.Fatal(err)
		}
		again, err := LoadBytes(written.Bytes(), "tokenizer.json")
		if err != nil {
			t.Fatalf("what was written does not load: %v", err)
		}
		text := "ab a b<e>"
		if a, b := encode(t, tok, text, asPrompt), encode(t, again, text, asPrompt); !slices.Equal(a, b) {
			t.Fatalf("%v from the GGUF, %v from what was written", a, b)
		}
	})
}
