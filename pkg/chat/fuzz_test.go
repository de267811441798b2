package chat

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"
)

// Whatever a template is, it gives a prompt or one of our errors, in time.
func FuzzTemplate(f *testing.F) {
	b, err := os.ReadFile("testdata/snippets.json")
	if err != nil {
		f.Fatal(err)
	}
	var snippets []string
	if err := json.Unmarshal(b, &snippets); err != nil {
		f.Fatal(err)
	}
	for _, s := range snippets {
		f.Add(s)
	}
	messages := []Message{NewMessage("system", "s"), NewMessage("user", "u")}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := Compile("t", source)
		if err == nil {
			_, err = template.Render(messages, Options{Date: time.Unix(0, 0)})
		}
		var refused *UnsupportedError
		var raised *RaisedError
		if err != nil && !errors.As(err, &refused) && !errors.As(err, &raised) {
			t.Errorf("%T: %v", err, err)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":"x"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if m, err := ParseMessage("m", line); err == nil && !m.has("content") {
			t.Error("no content and no error")
		}
	})
}
