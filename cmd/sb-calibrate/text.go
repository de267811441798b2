package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/internal/text"
	"substrate/pkg/calib"
	"substrate/pkg/calib/corpus"
	"substrate/pkg/chat"
	"substrate/pkg/model"
	"substrate/pkg/tokenizer"
)

// maxTextBytes bounds a text file: a hundred times what a careful
// calibration reads.
const maxTextBytes = 256 << 20

// textFlags choose the text that is scored.
type textFlags struct {
	files    []string
	link     []string // other text, for measure
	tokens   int
	codes    int // tokens that codes are fitted to, for measure
	sequence int
}

func defineText(fs *pflag.FlagSet, tokens int) *textFlags {
	f := new(textFlags)
	fs.StringArrayVar(&f.files, "text", nil, "score `FILE`, plain text (one document) or *.jsonl with a member \"text\", or \"messages\" of a chat, a line, instead of the built-in text; can be given several times")
	fs.IntVar(&f.tokens, "tokens", tokens, "score about `N` tokens")
	fs.IntVar(&f.sequence, "sequence", 256, "in sequences of `N` tokens")
	return f
}

// defineLink adds the flag for the text on which routing and whole plans are
// observed.
func (f *textFlags) defineLink(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.link, "link-text", nil, "observe routing on `FILE`, other text than --text (default with the built-in text: a part of its own)")
}

// data returns the tokens of a part of the chosen text. Users' documents are
// all of the part asked for.
func (f *textFlags) data(m *model.Model, part string) (*calib.Data, error) {
	return f.of(m, f.files, part)
}

// leastCodes is how much text codes need that are not to be fitted to the text
// that is scored.
const leastCodes = 512

// fitData returns the tokens to be scored, and more of the same text for codes,
// nil if there is no more.
func (f *textFlags) fitData(m *model.Model) (scored, codes *calib.Data, err error) {
	if f.codes < 0 {
		return nil, nil, cli.Usage("--codes-tokens %d: want 0 or more", f.codes)
	}
	both := *f
	both.tokens += f.codes
	data, err := both.data(m, calib.PartFit)
	if err != nil || f.codes == 0 {
		return data, nil, err
	}
	scored, codes = data.Cut(f.tokens, calib.PartCodes)
	if codes != nil && codes.Part.Tokens < leastCodes {
		codes = nil
	}
	return scored, codes, nil
}

// linkData returns the other text, nil if a user gave text and no other.
func (f *textFlags) linkData(m *model.Model) (*calib.Data, error) {
	if len(f.files) > 0 && len(f.link) == 0 {
		return nil, nil
	}
	return f.of(m, f.link, calib.PartLink)
}

// of returns the tokens of a part of files, or of the built-in text.
func (f *textFlags) of(m *model.Model, files []string, part string) (*calib.Data, error) {
	if f.tokens < 1 || f.sequence < 32 {
		return nil, cli.Usage("--tokens %d, --sequence %d: want at least 1 and 32", f.tokens, f.sequence)
	}
	tok, err := text.Tokenizer(m)
	if err != nil {
		return nil, err
	}
	docs, err := documents(m, files, part)
	if err != nil {
		return nil, err
	}
	encode := func(d *calib.Document) ([]int32, error) {
		return tok.Encode(d.Text, tokenizer.EncodeOptions{ParseSpecial: d.Chat})
	}
	a := &m.Profile().Architecture
	data, err := calib.Tokenize(docs, part, encode, firstToken(tok), min(f.sequence, a.ContextTokens), f.tokens)
	if err != nil {
		return nil, cli.BadDocument("%w", err)
	}
	data.Part.Name = "built-in"
	if len(files) > 0 {
		data.Part.Name = strings.Join(baseNames(files), ",")
	}
	return data, nil
}

// firstToken is the token that the model wants before a text, -1 if none.
func firstToken(tok *tokenizer.Tokenizer) int {
	with, err := tok.Encode("a", tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil || len(with) < 2 || !tok.Special(with[0]) {
		return -1
	}
	return int(with[0])
}

func documents(m *model.Model, files []string, part string) ([]calib.Document, error) {
	var docs []calib.Document
	if len(files) == 0 {
		for _, d := range corpus.Documents() {
			if d.Part == part {
				docs = append(docs, calib.Document{Name: d.Name, Part: d.Part, Text: d.Text})
			}
		}
		return docs, nil
	}
	for _, path := range files {
		b, err := readText(path)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(path, ".jsonl") {
			docs = append(docs, calib.Document{Name: path, Part: part, Text: string(b)})
			continue
		}
		lines, err := jsonlDocuments(m, path, b)
		if err != nil {
			return nil, err
		}
		for i := range lines {
			lines[i].Part = part
		}
		docs = append(docs, lines...)
	}
	return docs, nil
}

func readText(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxTextBytes+1))
	if err == nil && len(b) > maxTextBytes {
		err = cli.BadDocument("%s: more than %d MiB of text", path, maxTextBytes>>20)
	}
	return b, err
}

// jsonlDocuments reads a text, or a chat, a line.
func jsonlDocuments(m *model.Model, path string, b []byte) ([]calib.Document, error) {
	var out []calib.Document
	var chats *chatRenderer
	for i, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		d := struct {
			Text     string          `json:"text"`
			Messages jsonio.RawValue `json:"messages"`
		}{}
		name := fmt.Sprintf("%s:%d", path, i+1)
		if err := jsonio.UnmarshalLoose(name, line, &d); err != nil {
			return nil, err
		}
		if d.Messages == nil {
			if d.Text == "" {
				return nil, cli.BadDocument("%s: no member \"text\" and no \"messages\"", name)
			}
			out = append(out, calib.Document{Name: name, Text: d.Text})
			continue
		}
		if chats == nil {
			var err error
			if chats, err = newChatRenderer(m); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		text, err := chats.render(name, d.Messages)
		if err != nil {
			return nil, err
		}
		out = append(out, calib.Document{Name: name, Text: text, Chat: true})
	}
	return out, nil
}

// chatRenderer turns conversations into the text that the model was trained on.
type chatRenderer struct {
	template *chat.Template
	options  chat.Options
}

func newChatRenderer(m *model.Model) (*chatRenderer, error) {
	source, err := m.ChatTemplate()
	if err != nil {
		return nil, err
	}
	if source == "" {
		return nil, cli.WithHint(cli.No("the model has no chat template"), "lines with a member \"text\" need none")
	}
	c := new(chatRenderer)
	if c.options.Tokens, err = m.SpecialTokens(); err != nil {
		return nil, err
	}
	c.template, err = chat.Compile("chat template", source)
	return c, err
}

func (c *chatRenderer) render(name string, messages jsonio.RawValue) (string, error) {
	elements, err := jsonio.Elements(name, messages)
	if err != nil {
		return "", err
	}
	var list []chat.Message
	for _, e := range elements {
		m, err := chat.ParseMessage(name, e)
		if err != nil {
			return "", err
		}
		list = append(list, m)
	}
	text, err := c.template.Render(list, c.options)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

func baseNames(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = filepath.Base(p)
	}
	return out
}
