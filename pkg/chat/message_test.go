package chat

import (
	"reflect"
	"strings"
	"testing"
)

func TestReadMessages(t *testing.T) {
	got, err := ReadMessages("m.jsonl", strings.NewReader("{\"role\":\"user\",\"content\":\"a\\nb\"}\n{\"name\":\"x\",\"content\":\"\",\"role\":\"tool\"}\n"), 0)
	want := []Message{NewMessage("user", "a\nb"), {[]Member{{"name", "x"}, {"content", ""}, {"role", "tool"}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"{\"role\":\"user\"}\n":                  `m.jsonl:1: the message has no "content"`,
		"{\"role\":\"user\",\"content\":null}\n": "m.jsonl:1: /content: want a string",
		"{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"user\",\"content\":[]}\n": "m.jsonl:2: /content: want a string",
		"[1]\n": "m.jsonl:1: ",
		"{\"role\":\"user\",\"role\":\"x\",\"content\":\"a\"}\n": "m.jsonl:1: ",
		"\n": "m.jsonl:1: empty line",
	} {
		if _, err := ReadMessages("m.jsonl", strings.NewReader(text), 0); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
