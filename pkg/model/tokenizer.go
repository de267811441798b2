package model

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"substrate/internal/jsonio"
)

// Files of a Hugging Face folder that tell of text.
const (
	tokenizerFile       = "tokenizer.json"
	tokenizerConfigFile = "tokenizer_config.json"
	chatTemplateFile    = "chat_template.jinja"
)

// The largest tokenizer.json files known have some 33 MB.
const (
	maxTokenizerBytes    = 128 << 20
	maxChatTemplateBytes = 1 << 20
)

// TokenizerSource is what a checkpoint says of its tokenizer: either JSON or
// Vocabulary.
type TokenizerSource struct {
	JSON       []byte      // tokenizer.json
	Config     []byte      // tokenizer_config.json; nil if there is none
	Vocabulary *Vocabulary // of a GGUF file
}

// Vocabulary is the tokenizer of a GGUF file.
type Vocabulary struct {
	Model      string // "gpt2" is byte-level BPE, "llama" SentencePiece
	Pre        string // name of the rule that splits text before BPE
	Tokens     []string
	TokenTypes []int32 // ggml's: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; nil if not given
	Merges     []string
	Scores     []float32 // of SentencePiece's tokens; nil if not given
	// Special tokens, -1 where not given.
	BOS, EOS, UNK, PAD int
	AddBOS             bool
	NoSpacePrefix      bool // a text gets no space in front
	ChatTemplate       string
}

// Tokenizer reads what the checkpoint says of its tokenizer.
func (m *Model) Tokenizer() (*TokenizerSource, error) {
	if m.vocab != nil {
		v, err := m.vocab.read(m.files[0])
		return &TokenizerSource{Vocabulary: v}, err
	}
	text, err := readSmall(filepath.Join(m.path, tokenizerFile), maxTokenizerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{File: m.path, Offset: -1, Reason: "no tokenizer.json: save the tokenizer with a current version of transformers"}
	}
	if err != nil {
		return nil, err
	}
	config, err := readOptional(filepath.Join(m.path, tokenizerConfigFile), maxConfigBytes)
	return &TokenizerSource{JSON: text, Config: config}, err
}

// ChatTemplate returns the Jinja template that turns messages into a prompt,
// "" if the checkpoint has none. Of several, it is the one named "default".
func (m *Model) ChatTemplate() (string, error) {
	if m.vocab != nil {
		return m.vocab.chatTemplate, nil
	}
	text, err := readOptional(filepath.Join(m.path, chatTemplateFile), maxChatTemplateBytes)
	if err != nil || text != nil {
		return string(text), err
	}
	text, err = readOptional(filepath.Join(m.path, tokenizerConfigFile), maxConfigBytes)
	if err != nil || text == nil {
		return "", err
	}
	return configTemplate(text)
}

// configTemplate finds the template in a tokenizer_config.json: a string or a
// list of named ones.
func configTemplate(text []byte) (string, error) {
	var config struct {
		Template jsonio.RawValue `json:"chat_template"`
	}
	if err := jsonio.UnmarshalLoose(tokenizerConfigFile, text, &config); err != nil {
		return "", err
	}
	switch config.Template.Kind() {
	case '"':
		var template string
		err := jsonio.UnmarshalLoose(tokenizerConfigFile, config.Template, &template)
		return template, err
	case '[':
		var named []struct {
			Name     string `json:"name"`
			Template string `json:"template"`
		}
		err := jsonio.UnmarshalLoose(tokenizerConfigFile, config.Template, &named)
		for _, n := range named {
			if n.Name == "default" {
				return n.Template, err
			}
		}
		return "", err
	}
	return "", nil
}

// fileDigest is the SHA-256 of a file in hex, "" if there is none.
func fileDigest(path string) (string, error) {
	f, err := openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.c.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f.r, 0, f.size)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
