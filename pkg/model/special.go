package model

import (
	"path/filepath"

	"substrate/internal/jsonio"
)

const specialTokensFile = "special_tokens_map.json"

// specialTokenNames are the names by which chat templates know special tokens.
var specialTokenNames = [...]string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// SpecialTokens returns the texts of the special tokens that the checkpoint
// names, by name: "bos_token", "eos_token" ...
func (m *Model) SpecialTokens() (map[string]string, error) {
	tokens := map[string]string{}
	if m.vocab != nil {
		v, err := m.vocab.read(m.files[0])
		if err != nil {
			return nil, err
		}
		for name, id := range map[string]int{"bos_token": v.BOS, "eos_token": v.EOS, "unk_token": v.UNK, "pad_token": v.PAD} {
			if id >= 0 && id < len(v.Tokens) {
				tokens[name] = v.Tokens[id]
			}
		}
		return tokens, nil
	}
	for _, file := range [...]string{specialTokensFile, tokenizerConfigFile} { // the second knows better
		text, err := readOptional(filepath.Join(m.path, file), maxConfigBytes)
		if err != nil || text == nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		var config map[string]jsonio.RawValue
		if err := jsonio.UnmarshalLoose(file, text, &config); err != nil {
			return nil, err
		}
		for _, name := range specialTokenNames {
			if s, err := tokenText(file, config[name]); err != nil {
				return nil, jsonio.Within(file, jsonio.Pointer("/"+name), err)
			} else if s != "" {
				tokens[name] = s
			}
		}
	}
	return tokens, nil
}

// tokenText reads a token, a string or an object with one; "" for null.
func tokenText(file string, raw jsonio.RawValue) (string, error) {
	switch raw.Kind() {
	case '"':
		var s string
		err := jsonio.UnmarshalLoose(file, raw, &s)
		return s, err
	case '{':
		var token struct {
			Content string `json:"content"`
		}
		err := jsonio.UnmarshalLoose(file, raw, &token)
		return token.Content, err
	}
	return "", nil
}
