package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"substrate/pkg/model"
)

// Lines of a JSONL file are texts, or chats in the words of the model's
// template.
func TestDocumentsOfJSONL(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../testdata/models/qwen3moe")); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := write("a.jsonl", `{"text":"plain"}
{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi"}],"id":7}
`)
	open := func() *model.Model {
		m, err := model.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	if _, err := documents(open(), []string{path}, "fit"); err == nil || !strings.Contains(err.Error(), "no chat template") {
		t.Errorf("a chat without a template: %v", err)
	}
	write("chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}")
	docs, err := documents(open(), []string{path}, "fit")
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 2 || docs[0].Text != "plain" || docs[0].Chat || docs[1].Text != "<user>Hello\n<assistant>Hi\n" || !docs[1].Chat || docs[1].Part != "fit" {
		t.Errorf("documents %+v", docs)
	}
	for text, want := range map[string]string{
		`{"id":1}`:                          "messages",
		`{"messages":"no list"}`:            ":1",
		`{"messages":[{"role":"user"}]}`:    "content",
		`{"messages":[{"role":7}]}`:         "string",
		"{\"text\":\"a\"}\nnot JSON at all": ":2",
	} {
		if _, err := documents(open(), []string{write("bad.jsonl", text)}, "fit"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
