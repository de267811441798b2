package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/internal/text"
	"substrate/pkg/model"
	"substrate/pkg/quant"
	"substrate/pkg/store"
)

// maxConfigBytes bounds a config.json.
const maxConfigBytes = 16 << 20

// modelTexts are the small files that the store takes over from a model.
func modelTexts(env *cli.Env, m *model.Model, path string) ([]store.Text, error) {
	var texts []store.Text
	add := func(file string, b []byte) { texts = append(texts, store.Text{File: file, Data: b}) }
	tokenizer, err := tokenizerJSON(m, path)
	if err != nil {
		return nil, err
	}
	if tokenizer == nil {
		env.Warnf("%s has no tokenizer.json: the store will have none, and sb-run cannot read its prompt", path)
	} else {
		add("tokenizer.json", tokenizer)
	}
	config, err := readSmall(filepath.Join(path, "config.json"))
	if err != nil {
		return nil, err
	}
	if config != nil {
		add("config.json", config)
	}
	template, err := m.ChatTemplate()
	if err != nil {
		return nil, err
	}
	if template != "" {
		add("chat_template.jinja", []byte(template))
	}
	special, err := m.SpecialTokens()
	if err == nil && len(special) > 0 {
		var b []byte
		if b, err = jsonio.Marshal(special); err == nil {
			add("special_tokens_map.json", b)
		}
	}
	return texts, err
}

// tokenizerJSON is the model's tokenizer.json: its own, or one made of the
// vocabulary of a GGUF file; nil if it has neither.
func tokenizerJSON(m *model.Model, path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, "tokenizer.json")); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		source, err := m.Tokenizer()
		if err != nil {
			return nil, err
		}
		return source.JSON, nil
	}
	tok, err := text.Tokenizer(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = tok.WriteJSON(&b)
	return b.Bytes(), err
}

// readSmall reads a file of a model folder; nil if there is none, or no folder.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	if info.Size() > maxConfigBytes {
		return nil, cli.BadDocument("%s: %d bytes, at most %d", path, info.Size(), maxConfigBytes)
	}
	return os.ReadFile(path)
}

// openStats opens the statistics that the plans were measured with; nil if
// they need none.
func openStats(path, digest string) (*quant.Stats, error) {
	switch {
	case digest == "" && path == "":
		return nil, nil
	case digest == "":
		return nil, cli.WithHint(cli.No("--stats %s: the plan was made without statistics", path), "leave --stats out")
	case path != "":
		s, err := quant.OpenStats(path)
		if err != nil {
			return nil, err
		}
		if s.SHA256() != digest {
			s.Close()
			return nil, cli.No("%s has sha256 %s, the plan was made with %s", path, s.SHA256(), digest)
		}
		return s, nil
	}
	dir, err := quant.StatsDir()
	if err != nil {
		return nil, cli.WithHint(cli.Usage("no cache folder to look for statistics in: %w", err), "--stats FILE names the file")
	}
	s, err := quant.FindStats(dir, digest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.WithHint(cli.IO("the statistics %s that the plan was made with are not in %s", digest, dir),
			"copy the file there or give it with --stats FILE; or measure again here: sb-calibrate measure --model MODEL")
	}
	return s, err
}

// fingerprint tells the files of a model apart from others without reading
// them.
func fingerprint(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	names := []string{path}
	if info.IsDir() {
		if names, err = filepath.Glob(filepath.Join(globQuote(path), "*.safetensors")); err != nil {
			return "", err
		}
		slices.Sort(names)
	}
	var b strings.Builder
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%q %d %d\n", filepath.Base(name), info.Size(), info.ModTime().UnixNano())
	}
	return b.String(), nil
}

// globQuote makes a pattern that matches path alone.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
