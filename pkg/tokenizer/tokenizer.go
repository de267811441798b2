// Package tokenizer turns text into the tokens of a model and back, exactly as Hugging Face's tokenizers do. It reads
// tokenizer.json and the vocabulary of a GGUF file.
//
// A text goes through these steps; each but the first and the model is a component that the file names:
//
//	added tokens     cut out before anything else        "<|im_start|>"
//	normalizer       rewrites what lies between          NFC
//	pre-tokenizer    cuts it into words                  by the pattern of GPT-2
//	model            encodes each word                   byte-pair encoding
//	post-processor   puts special tokens around          "<s>"
//	decoder          the way back                        bytes of the byte-level alphabet
//
// "truncation" and "padding" of a file are not applied: they are wishes about batches, not about text.
//
// A loaded tokenizer is small, since it lives in the process whose memory is capped: texts in one arena, flat hash tables
// of 32-bit slots. SmolLM2's, of 49,152 tokens and 48,900 merges, takes 2 MiB.
package tokenizer

import (
	"cmp"
	"slices"

	"substrate/internal/jsonio"
)

// Tokenizer encodes and decodes text. It does not change after loading: goroutines may share one.
type Tokenizer struct {
	model      model
	normalizer normalizer   // nil: none
	cutsStart  bool         // the normalizer may drop the start of a text
	pre        preTokenizer // nil: a text is one word
	decoder    decoder

	before, after []int32 // special tokens around a text

	added      []addedToken // by id
	byContent  []int32      // places in added, by content
	raw        *matcher     // of added tokens looked for in the text as it is
	normalized *matcher     // of those looked for in the normalized text

	roles  Roles
	source source
}

// source is the text of the components, for writing.
type source struct {
	normalizer, preTokenizer, postProcessor, decoder jsonio.RawValue
}

// Roles are the tokens with a part to play, -1 where a tokenizer names none.
type Roles struct {
	BOS int32 // starts a text
	EOS int32 // ends a text, or a turn of a chat
	UNK int32 // stands for what has no token
	PAD int32 // fills batches
}

// NoRoles is the Roles without any.
func NoRoles() Roles { return Roles{-1, -1, -1, -1} }

// Roles returns the tokens with a part to play. A tokenizer.json says nothing of them but for the ones that its template
// puts around a text; tokenizer_config.json and config.json do.
func (t *Tokenizer) Roles() Roles { return t.roles }

// BOS returns the token that starts a text.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.roles.BOS, t.roles.BOS >= 0 }

// EOS returns the token that ends a text.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.roles.EOS, t.roles.EOS >= 0 }

// EncodeOptions change how a text is taken. The zero value takes it as nothing but text.
type EncodeOptions struct {
	AddSpecial   bool // put the special tokens around the text that the model wants there
	ParseSpecial bool // take the text of a special token, "<|im_end|>", for that token
}

// Encode returns the tokens of text. Bytes that are not UTF-8 are encoded as they are by a byte-level tokenizer. It fails
// only where a pattern of the file takes longer than some seconds or a normalizer makes too much of a text, with a
// [*jsonio.Error], since that is the fault of the file. Its working memory is some 20 bytes for each byte of
// the longest word.
func (t *Tokenizer) Encode(text string, opts EncodeOptions) ([]int32, error) {
	var w work
	ids := make([]int32, 0, len(text)/3+len(t.before)+len(t.after)+1)
	if opts.AddSpecial {
		ids = append(ids, t.before...)
	}
	token := func(id int32) { ids = append(ids, id) }
	word := func(p piece) error {
		ids = t.model.encode(ids, p.text, &w)
		return nil
	}
	words := word
	if t.pre != nil {
		words = func(p piece) error { return t.pre.split(p, word) }
	}
	err := t.raw.split(piece{[]byte(text), true}, opts.ParseSpecial, token, func(p piece) error {
		if t.normalizer != nil {
			if p.first && t.cutsStart {
				p.first = !cutsStart(t.normalizer, p.text)
			}
			var err error
			if p.text, err = t.normalizer.normalize(p.text); err != nil {
				return err
			}
		}
		return t.normalized.split(p, opts.ParseSpecial, token, words)
	})
	if err != nil {
		return nil, jsonio.Within("tokenizer", "", err)
	}
	if opts.AddSpecial {
		ids = append(ids, t.after...)
	}
	return ids, nil
}

// VocabSize is one more than the highest id of a token.
func (t *Tokenizer) VocabSize() int {
	size := t.model.vocabulary().size()
	if n := len(t.added); n > 0 {
		size = max(size, int(t.added[n-1].ID)+1)
	}
	return size
}

// Tokens is the number of tokens; VocabSize may be more, as ids may be left out.
func (t *Tokenizer) Tokens() int {
	v := t.model.vocabulary()
	n := v.used
	for _, a := range t.added {
		if len(v.token(a.ID)) == 0 {
			n++
		}
	}
	return n
}

// LongestToken is the number of bytes of the longest token's text as in the file. A token stands for no more of a text,
// unless it takes the white space around it too: so many bytes times the number of tokens that have room is as long as a
// text can be.
func (t *Tokenizer) LongestToken() int {
	longest := 0
	v := t.model.vocabulary()
	for id := range int32(v.size()) {
		longest = max(longest, len(v.token(id)))
	}
	for _, a := range t.added {
		longest = max(longest, len(a.Content))
	}
	return longest
}

// TokenID returns the id of a token by its text as in the file, "<|im_end|>", "Ġthe".
func (t *Tokenizer) TokenID(text string) (id int32, ok bool) {
	at, ok := slices.BinarySearchFunc(t.byContent, text, func(i int32, s string) int {
		return cmp.Compare(t.added[i].Content, s)
	})
	if ok {
		return t.added[t.byContent[at]].ID, true
	}
	return t.model.vocabulary().id([]byte(text))
}

// TokenText is the inverse of TokenID, "" for an id without a token.
func (t *Tokenizer) TokenText(id int32) string {
	if a := t.addedByID(id); a != nil {
		return a.Content
	}
	return string(t.model.vocabulary().token(id))
}

// Special tells whether id is a special token: one of control, not of text.
func (t *Tokenizer) Special(id int32) bool {
	a := t.addedByID(id)
	return a != nil && a.Special
}

// token returns what the decoder gets for a token, nil if there is none.
func (t *Tokenizer) token(id int32) []byte {
	if a := t.addedByID(id); a != nil {
		return a.text
	}
	if text := t.model.vocabulary().token(id); len(text) > 0 {
		return text
	}
	return nil
}

func (t *Tokenizer) addedByID(id int32) *addedToken {
	at, ok := slices.BinarySearchFunc(t.added, id, func(a addedToken, id int32) int { return cmp.Compare(a.ID, id) })
	if !ok {
		return nil
	}
	return &t.added[at]
}

// parts are what a Tokenizer is made of.
type parts struct {
	model  model
	added  []addedToken
	source source
	roles  Roles
}

// assemble makes the components and puts the parts together. Errors have a pointer into a tokenizer.json.
func assemble(p parts) (*Tokenizer, error) {
	t := &Tokenizer{model: p.model, added: p.added, source: p.source, roles: p.roles, decoder: spaced{}}
	if err := t.makeComponents(); err != nil {
		return nil, err
	}
	v := p.model.vocabulary()
	if err := checkAdded(t.added, v); err != nil {
		return nil, jsonio.Within("", "/added_tokens", err)
	}
	if err := t.indexAdded(); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(t.before, t.after) {
		if t.token(id) == nil {
			return nil, jsonio.Errorf("", "/post_processor", "token id %d is not in the vocabulary", id)
		}
	}
	if b, ok := p.model.(*bpe); ok {
		if last := lastByteLevel(t.pre); last != nil {
			last.rawBytes = b.takeBytes()
		}
	}
	if t.roles.BOS < 0 && len(t.before) == 1 {
		t.roles.BOS = t.before[0]
	}
	if t.roles.EOS < 0 && len(t.after) == 1 {
		t.roles.EOS = t.after[0]
	}
	return t, nil
}

func (t *Tokenizer) makeComponents() (err error) {
	if raw := t.source.normalizer; !isNull(raw) {
		if t.normalizer, err = newNormalizer(raw, 0); err != nil {
			return jsonio.Within("", "/normalizer", err)
		}
		t.cutsStart = canCutStart(t.normalizer)
	}
	if raw := t.source.preTokenizer; !isNull(raw) {
		if t.pre, err = newPreTokenizer(raw, 0); err != nil {
			return jsonio.Within("", "/pre_tokenizer", err)
		}
	}
	if raw := t.source.postProcessor; !isNull(raw) {
		post, err := newPostProcessor(raw, 0)
		if err != nil {
			return jsonio.Within("", "/post_processor", err)
		}
		t.before, t.after = post.around()
	}
	if raw := t.source.decoder; !isNull(raw) {
		if t.decoder, err = newDecoder(raw, 0); err != nil {
			return jsonio.Within("", "/decoder", err)
		}
	}
	return nil
}

// indexAdded prepares the search for added tokens by text and in texts.
func (t *Tokenizer) indexAdded() error {
	t.byContent = make([]int32, len(t.added))
	for i := range t.byContent {
		t.byContent[i] = int32(i)
	}
	slices.SortFunc(t.byContent, func(a, b int32) int { return cmp.Compare(t.added[a].Content, t.added[b].Content) })

	var raw, normalized []*addedToken
	for i := range t.added {
		a := &t.added[i]
		a.text = []byte(a.Content)
		if !a.Normalized {
			raw = append(raw, a)
			continue
		}
		normalized = append(normalized, a)
		if t.normalizer != nil {
			var err error
			if a.text, err = t.normalizer.normalize(a.text); err != nil {
				return jsonio.Within("", "/added_tokens", err)
			}
		}
	}
	t.raw, t.normalized = newMatcher(raw), newMatcher(normalized)
	return nil
}
