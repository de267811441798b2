package synth

import "substrate/internal/jsonio"

// The tokenizer of a made-up checkpoint: specials first, then one token for
// every byte, no merges. A byte is written as the character that byte-level
// BPE has for it.
const (
	specials = 3
	tokens   = specials + 256
)

// specialTokens are the first ids.
func specialTokens() [specials]string {
	return [specials]string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
}

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type byteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       bool   `json:"use_regex"`
}

func tokenizerJSON() ([]byte, error) {
	type bpe struct {
		Type   string         `json:"type"`
		Vocab  map[string]int `json:"vocab"`
		Merges [][]string     `json:"merges"`
	}
	file := struct {
		Version      string       `json:"version"`
		AddedTokens  []addedToken `json:"added_tokens"`
		PreTokenizer byteLevel    `json:"pre_tokenizer"`
		Decoder      byteLevel    `json:"decoder"`
		Model        bpe          `json:"model"`
	}{
		Version:      "1.0",
		PreTokenizer: byteLevel{Type: "ByteLevel", TrimOffsets: true, UseRegex: true},
		Decoder:      byteLevel{Type: "ByteLevel", AddPrefixSpace: true, TrimOffsets: true, UseRegex: true},
		Model:        bpe{Type: "BPE", Vocab: map[string]int{}},
	}
	for id, content := range specialTokens() {
		file.AddedTokens = append(file.AddedTokens, addedToken{ID: id, Content: content, Special: true})
		file.Model.Vocab[content] = id
	}
	for b, r := range byteCharacters() {
		file.Model.Vocab[string(r)] = specials + b
	}
	return jsonio.Marshal(file)
}

// byteCharacters are the characters that stand for bytes in byte-level BPE, as
// GPT-2 introduced them: printable Latin-1 stands for itself, the others follow
// from U+0100 on.
func byteCharacters() [256]rune {
	var characters [256]rune
	next := rune(0x100)
	for b := range characters {
		r := rune(b)
		if !('!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ') {
			r = next
			next++
		}
		characters[b] = r
	}
	return characters
}
