// Package text opens the tokenizer that a checkpoint carries, whichever form
// it has. It joins pkg/model and pkg/tokenizer, which do not know each other.
package text

import (
	"substrate/pkg/model"
	"substrate/pkg/tokenizer"
)

// Tokenizer returns the tokenizer of a checkpoint: tokenizer.json of a
// folder, the vocabulary of a GGUF file.
func Tokenizer(m *model.Model) (*tokenizer.Tokenizer, error) {
	source, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	if v := source.Vocabulary; v != nil {
		return tokenizer.FromGGUF(tokenizer.Vocab{
			Model: v.Model, Pre: v.Pre, Tokens: v.Tokens, TokenTypes: v.TokenTypes, Merges: v.Merges, Scores: v.Scores,
			BOS: int32(v.BOS), EOS: int32(v.EOS), UNK: int32(v.UNK), PAD: int32(v.PAD), AddBOS: v.AddBOS, NoSpacePrefix: v.NoSpacePrefix,
		})
	}
	return tokenizer.LoadBytes(source.JSON, "tokenizer.json")
}
