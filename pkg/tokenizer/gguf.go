package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// Vocab is the tokenizer of a GGUF file: the metadata under "tokenizer.ggml.", whose names the comments give.
type Vocab struct {
	Model      string    // model: "gpt2" is byte-level BPE, "llama" SentencePiece's BPE
	Pre        string    // pre: name of the pre-tokenizer
	Tokens     []string  // tokens
	TokenTypes []int32   // token_type, as many as tokens, or none
	Merges     []string  // merges, of gpt2: two tokens with a space between them
	Scores     []float32 // scores, of llama: what is joined first has the highest; as many as tokens

	// Ids of tokens with a part to play, -1 for none: bos_token_id, eos_token_id, unknown_token_id, padding_token_id.
	BOS, EOS, UNK, PAD int32

	AddBOS, AddEOS bool // add_bos_token, add_eos_token
	NoSpacePrefix  bool // add_space_prefix is false
}

// Token types of GGUF.
const (
	tokenNormal      = 1
	tokenUnknown     = 2
	tokenControl     = 3
	tokenUserDefined = 4
	tokenUnused      = 5
	tokenByte        = 6
)

// FromGGUF makes the tokenizer of a GGUF file. It gives the tokens of the tokenizer.json that the file was made from, as far
// as the metadata say what that was; [Tokenizer.WriteJSON] writes one. It keeps nothing of v.
func FromGGUF(v Vocab) (*Tokenizer, error) {
	t, err := fromGGUF(v)
	if err != nil {
		return nil, jsonio.Within("tokenizer.ggml", "", err)
	}
	return t, nil
}

func fromGGUF(v Vocab) (*Tokenizer, error) {
	switch v.Model {
	case "gpt2":
	case "llama":
		return fromSentencePiece(v)
	default:
		return nil, jsonio.Errorf("", "/model", "tokenizer model %q is not supported; gpt2 (byte-level BPE) and llama (SentencePiece's BPE) are", v.Model)
	}
	style, err := styleOf(v.Pre)
	if err != nil {
		return nil, jsonio.Within("", "/pre", err)
	}
	p := parts{roles: Roles{BOS: v.BOS, EOS: v.EOS, UNK: v.UNK, PAD: v.PAD}}
	if err := checkRoles(v); err != nil {
		return nil, err
	}
	if p.added, err = addedOf(v); err != nil {
		return nil, err
	}
	vocab, err := vocabOf(v)
	if err != nil {
		return nil, jsonio.Within("", "/tokens", err)
	}
	list, err := mergesOf(v, vocab)
	if err != nil {
		return nil, jsonio.Within("", "/merges", err)
	}
	if p.model, err = newBPE(vocab, newMerges(list), bpeConfig{ignoreMerges: style.ignoreMerges}); err != nil {
		return nil, err
	}
	if p.source, err = style.source(v); err != nil {
		return nil, err
	}
	return assemble(p)
}

func checkRoles(v Vocab) error {
	for _, r := range []struct {
		name string
		id   int32
		add  bool
	}{
		{"bos_token_id", v.BOS, v.AddBOS},
		{"eos_token_id", v.EOS, v.AddEOS},
		{"unknown_token_id", v.UNK, false},
		{"padding_token_id", v.PAD, false},
	} {
		if r.id < -1 || int(r.id) >= len(v.Tokens) {
			return jsonio.Errorf("", jsonio.Pointer("/"+r.name), "there is no token %d among %d", r.id, len(v.Tokens))
		}
		if r.add && r.id < 0 {
			return jsonio.Errorf("", jsonio.Pointer("/"+r.name), "the token is missing that should go with every text")
		}
	}
	return nil
}

func vocabOf(v Vocab) (*vocab, error) {
	var size int
	for _, token := range v.Tokens {
		size += len(token)
	}
	b := vocabBuilder{
		text: make([]byte, 0, size),
		end:  make([]uint32, 0, len(v.Tokens)),
		ids:  make([]int32, 0, len(v.Tokens)),
	}
	for id, token := range v.Tokens {
		if !utf8.ValidString(token) {
			return nil, fmt.Errorf("token %d, %q, is not UTF-8", id, token)
		}
		b.text = append(b.text, token...)
		if err := b.add(int64(id)); err != nil {
			return nil, err
		}
	}
	return b.build()
}

func mergesOf(v Vocab, vocab *vocab) ([]merge, error) {
	b := mergeBuilder{vocab: vocab, list: make([]merge, 0, len(v.Merges))}
	for i, text := range v.Merges {
		left, right, ok := strings.Cut(text, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, fmt.Errorf("merge %d, %q, is not two tokens with a space between them", i, text)
		}
		if err := b.add([]byte(left), []byte(right)); err != nil {
			return nil, err
		}
	}
	return b.list, nil
}

// addedOf returns the tokens that are cut out of the text: those of control are special, those that a user defined are not.
func addedOf(v Vocab) ([]addedToken, error) {
	if v.TokenTypes == nil {
		return nil, nil
	}
	if len(v.TokenTypes) != len(v.Tokens) {
		return nil, jsonio.Errorf("", "/token_type", "%d types of %d tokens", len(v.TokenTypes), len(v.Tokens))
	}
	var added []addedToken
	for i, typ := range v.TokenTypes {
		switch typ {
		case tokenControl, tokenUnknown, tokenUserDefined:
			added = append(added, addedToken{ID: int32(i), Content: v.Tokens[i], Special: typ != tokenUserDefined})
		case tokenNormal, tokenUnused, tokenByte:
		default:
			return nil, jsonio.Errorf("", jsonio.Pointer(fmt.Sprintf("/token_type/%d", i)), "token type %d is not known", typ)
		}
	}
	return added, nil
}

// style is what the name of a pre-tokenizer stands for.
type style struct {
	names        []string // as llama.cpp's converter writes them
	normalizer   string   // component of a tokenizer.json, "" for none
	patterns     []string // split one after the other; nil is the pattern of GPT-2
	digits       bool     // digits are split off one by one first
	ignoreMerges bool
}

// styles are those of the models' own tokenizer.json, but for "default": that is a file without a name, for which
// llama.cpp has four patterns (llama-vocab.cpp).
func styles() []style {
	return []style{
		{names: []string{"gpt-2", "phi-2"}},
		{names: []string{"smollm", "starcoder", "refact"}, digits: true},
		{names: []string{"qwen2", "deepseek-r1-qwen"}, normalizer: `{"type":"NFC"}`, patterns: []string{qwen2Pattern}},
		{names: []string{"llama-bpe", "llama3", "llama-v3"}, patterns: []string{llama3Pattern}, ignoreMerges: true},
		{names: []string{"default", ""}, patterns: []string{`[\p{P}\$\+<=>\^~\|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`}},
	}
}

func styleOf(name string) (style, error) {
	var known []string
	for _, s := range styles() {
		if slices.Contains(s.names, name) {
			return s, nil
		}
		known = append(known, s.names...)
	}
	return style{}, fmt.Errorf("pre-tokenizer %q is not supported; known: %s", name, strings.Join(known[:len(known)-1], ", "))
}

// source writes the components as a tokenizer.json has them.
func (s style) source(v Vocab) (source, error) {
	const byteLevel = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":%v}`
	var pre []string
	if s.digits {
		pre = append(pre, `{"type":"Digits","individual_digits":true}`)
	}
	for _, p := range s.patterns {
		pattern, err := jsonio.AppendString(nil, []byte(p))
		if err != nil {
			return source{}, err
		}
		pre = append(pre, fmt.Sprintf(`{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated","invert":false}`, pattern))
	}
	pre = append(pre, fmt.Sprintf(byteLevel, s.patterns == nil))

	src := source{
		normalizer:   jsonio.RawValue(s.normalizer),
		preTokenizer: jsonio.RawValue(pre[0]),
		decoder:      jsonio.RawValue(fmt.Sprintf(byteLevel, true)),
	}
	if len(pre) > 1 {
		src.preTokenizer = jsonio.RawValue(`{"type":"Sequence","pretokenizers":[` + strings.Join(pre, ",") + `]}`)
	}
	var err error
	src.postProcessor, err = templateOf(v)
	return src, err
}

// templateOf is the post-processor that puts BOS and EOS around a text, nil if neither is wanted.
func templateOf(v Vocab) (jsonio.RawValue, error) {
	if !v.AddBOS && !v.AddEOS {
		return nil, nil
	}
	var tokens []string
	special := func(id int32) (string, error) {
		text, err := jsonio.AppendString(nil, []byte(v.Tokens[id]))
		token := fmt.Sprintf(`%s:{"id":%s,"ids":[%d],"tokens":[%s]}`, text, text, id, text)
		if !slices.Contains(tokens, token) {
			tokens = append(tokens, token)
		}
		return fmt.Sprintf(`{"SpecialToken":{"id":%s,"type_id":0}}`, text), err
	}
	around := func(sequence string) (string, error) {
		list := []string{`{"Sequence":{"id":"` + sequence + `","type_id":0}}`}
		if v.AddBOS {
			bos, err := special(v.BOS)
			if err != nil {
				return "", err
			}
			list = slices.Insert(list, 0, bos)
		}
		if v.AddEOS {
			eos, err := special(v.EOS)
			if err != nil {
				return "", err
			}
			list = append(list, eos)
		}
		return strings.Join(list, ","), nil
	}
	single, err := around("A")
	if err != nil {
		return nil, err
	}
	second, err := around("B")
	if err != nil {
		return nil, err
	}
	return jsonio.RawValue(`{"type":"TemplateProcessing","single":[` + single + `],"pair":[` + single + `,` + second +
		`],"special_tokens":{` + strings.Join(tokens, ",") + `}}`), nil
}
