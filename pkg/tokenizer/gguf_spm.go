package tokenizer

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"substrate/internal/jsonio"
)

// fromSentencePiece makes the tokenizer of a vocabulary of SentencePiece's BPE, which has scores and no merges: of all pairs
// of neighbours that make a token it joins the one whose token has the highest score. The components are those of Llama 2's
// tokenizer.json.
func fromSentencePiece(v Vocab) (*Tokenizer, error) {
	p := parts{roles: Roles{BOS: v.BOS, EOS: v.EOS, UNK: v.UNK, PAD: v.PAD}}
	if err := checkRoles(v); err != nil {
		return nil, err
	}
	if len(v.Scores) != len(v.Tokens) || len(v.TokenTypes) != len(v.Tokens) {
		return nil, jsonio.Errorf("", "/scores", "%d scores and %d types of %d tokens", len(v.Scores), len(v.TokenTypes), len(v.Tokens))
	}
	var err error
	if p.added, err = addedOf(v); err != nil {
		return nil, err
	}
	vocab, err := vocabOf(v)
	if err != nil {
		return nil, jsonio.Within("", "/tokens", err)
	}
	list, err := mergesOfScores(v, vocab)
	if err != nil {
		return nil, jsonio.Within("", "/scores", err)
	}
	config := bpeConfig{fuseUnk: true, byteFallback: slices.Contains(v.TokenTypes, tokenByte)}
	if v.UNK >= 0 {
		config.unkToken = v.Tokens[v.UNK]
	}
	if p.model, err = newBPE(vocab, newMerges(list), config); err != nil {
		return nil, err
	}
	const (
		mark    = `{"type":"Replace","pattern":{"String":" "},"content":"\u2581"}`
		prefix  = `{"type":"Prepend","prepend":"\u2581"}`
		decoded = `{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
		strip   = `{"type":"Strip","content":" ","start":1,"stop":0}`
	)
	p.source.normalizer = jsonio.RawValue(`{"type":"Sequence","normalizers":[` + prefix + "," + mark + `]}`)
	p.source.decoder = jsonio.RawValue(`{"type":"Sequence","decoders":[` + decoded + "," + strip + `]}`)
	if v.NoSpacePrefix {
		p.source.normalizer = jsonio.RawValue(mark)
		p.source.decoder = jsonio.RawValue(`{"type":"Sequence","decoders":[` + decoded + `]}`)
	}
	if p.source.postProcessor, err = templateOf(v); err != nil {
		return nil, err
	}
	return assemble(p)
}

// maxScoredBytes bounds a token that others are joined to, since all ways to part it are tried; the longest in use are runs
// of some 30 spaces.
const maxScoredBytes = 1 << 10

// mergesOfScores lists the pairs of tokens that make a token, that with the highest score first. Of pairs that make the
// same one the order is that of Hugging Face's converter: they differ in nothing else.
func mergesOfScores(v Vocab, vocab *vocab) ([]merge, error) {
	type pair struct {
		merge
		score       float32
		left, right int // characters
	}
	var pairs []pair
	for id, text := range v.Tokens {
		switch v.TokenTypes[id] {
		case tokenNormal, tokenUserDefined, tokenUnused:
		default:
			continue
		}
		if score := v.Scores[id]; score != score {
			return nil, jsonio.Errorf("", "", "the score of token %d is not a number", id)
		}
		if len(text) > maxScoredBytes {
			return nil, jsonio.Errorf("", "", "token %d has %d bytes, more than %d", id, len(text), maxScoredBytes)
		}
		whole := []byte(text)
		for at, n := 0, 1; ; n++ {
			_, size := utf8.DecodeRune(whole[at:])
			if at += size; at >= len(whole) {
				break
			}
			left, ok := vocab.id(whole[:at])
			if !ok {
				continue
			}
			right, ok := vocab.id(whole[at:])
			if !ok {
				continue
			}
			if len(pairs) >= maxMerges {
				return nil, jsonio.Errorf("", "", "more than %d pairs of tokens make a token", maxMerges)
			}
			pairs = append(pairs, pair{merge{left, right, int32(id)}, v.Scores[id], n, utf8.RuneCount(whole[at:])})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.left, a.left), cmp.Compare(b.right, a.right))
	})
	list := make([]merge, len(pairs))
	for i, p := range pairs {
		list[i] = p.merge
	}
	return list, nil
}
