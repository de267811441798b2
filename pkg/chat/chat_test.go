package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// goldens is what scripts/make_chat_goldens.py wrote: prompts that Python's
// Jinja2, as transformers sets it up, made. A nil prompt is an error there; of others there
// may be the digest alone.
type goldens struct {
	Tokens  map[string]string
	Date    time.Time
	Goldens []struct {
		Name    string
		SHA256  string
		Prompts [][2]*string // by conversation; without and with generation prompt
	}
	Snippets []struct {
		Template string
		Text     *string
	}
}

func readGoldens(t *testing.T) (g goldens, conversations [][]Message) {
	t.Helper()
	b, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/conversations.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var c []struct{ Role, Content string }
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		var messages []Message
		for _, m := range c {
			messages = append(messages, NewMessage(m.Role, m.Content))
		}
		conversations = append(conversations, messages)
	}
	return g, conversations
}

// templateFiles are the folders where templates of real models are: ours, that
// of the engine's tests, and $CHAT_TEMPLATES.
func templateFiles(t *testing.T) []string {
	t.Helper()
	folders := []string{"testdata/templates"}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ardanlabs/jinja").Output()
	if dir := strings.TrimSpace(string(out)); err == nil && dir != "" {
		folders = append(folders, filepath.Join(dir, "testdata", "templates"))
	}
	if dir := os.Getenv("CHAT_TEMPLATES"); dir != "" {
		folders = append(folders, dir)
	}
	var files []string
	for _, f := range folders {
		found, err := filepath.Glob(filepath.Join(f, "*.jinja"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}

// refused are the templates that use what is not known to be equal.
var refused = map[string]string{"Kimi-K3": "the operator *"}

// Templates of real models give the prompts that transformers gives.
func TestRealTemplates(t *testing.T) {
	g, conversations := readGoldens(t)
	sources := map[string]string{}
	for _, name := range templateFiles(t) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		sources[hex.EncodeToString(sum[:])] = string(b)
	}
	equal := 0
	for _, golden := range g.Goldens {
		source, ok := sources[golden.SHA256]
		if !ok {
			continue
		}
		t.Run(golden.Name, func(t *testing.T) {
			template, err := Compile(golden.Name, source)
			if why := refused[golden.Name]; why != "" {
				if err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("got %v, want a refusal for %s", err, why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal++
			for i, c := range conversations {
				for k, want := range golden.Prompts[i] {
					got, err := template.Render(c, Options{AddGenerationPrompt: k == 1, Tokens: g.Tokens, Date: g.Date})
					compare(t, got, err, want)
				}
			}
		})
	}
	t.Logf("%d templates are equal", equal)
	if equal < 10 {
		t.Errorf("only %d templates are equal", equal)
	}
}

// compare wants the text that Python gave, or an error where it gave one.
func compare(t *testing.T, got string, err error, want *string) {
	t.Helper()
	if want != nil && err == nil && strings.HasPrefix(*want, "sha256:") {
		sum := sha256.Sum256([]byte(got))
		if digest := "sha256:" + hex.EncodeToString(sum[:12]); digest != *want {
			t.Errorf("%q has %s, want %s", got, digest, *want)
		}
		return
	}
	switch {
	case want == nil && err == nil:
		t.Errorf("got %q, Python raises an error", got)
	case want != nil && err != nil:
		t.Errorf("%v, want %q", err, *want)
	case want != nil && got != *want:
		t.Errorf("got  %q\nwant %q", got, *want)
	}
}

// What a translation is made of does what Python does, piece by piece.
func TestSnippets(t *testing.T) {
	g, conversations := readGoldens(t)
	for _, s := range g.Snippets {
		template, err := Compile("snippet", s.Template)
		if err != nil {
			t.Errorf("%s: %v", s.Template, err)
			continue
		}
		got, err := template.Render(conversations[2], Options{AddGenerationPrompt: true, Tokens: g.Tokens, Date: g.Date})
		t.Run(s.Template, func(t *testing.T) { compare(t, got, err, s.Text) })
	}
}

// What is not known to be equal is refused by name, when a template is compiled or when it comes to it.
func TestRefusals(t *testing.T) {
	for source, want := range map[string]string{
		"{% include 'x' %}":                               `the statement "include"`,
		"a\n{{ x ** 2 }}":                                 "t.jinja:2: the chat template has the operator **",
		"{{ 'x' * 1000000000 }}":                          "the operator *",
		"{{ x | nonsense }}":                              `the filter "nonsense"`,
		"{{ 'x'.encode() }}":                              `the method "encode"`,
		"{{ x is divisibleby 3 }}":                        "a test in a form",
		"{{ x is callable }}":                             `the test "callable"`,
		"{{ messages }}":                                  "a print of a list",
		"{{ 1.5 }}":                                       "a number",
		"{% for i in range(1000000000) %}{% endfor %}":    "a range of more than",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "more than 100 deep",
		"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}":               "rounds",
		"{% set s = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' %}" + strings.Repeat("{% set s = s + s %}", 60): "a string of more than",
		"{{ strftime_now('%Y') }}":                    "the date of today",
		"{{ py_print(1) }}":                           "the name",
		"{% if x %}":                                  "without an end",
		"{{ x":                                        "without an end",
		"{{ " + strings.Repeat("(", 100):              "brackets",
		strings.Repeat("{% if 1 %}", 100):             "blocks more than",
		"{{ " + strings.Repeat("not ", 5000) + "1 }}": "tokens",
		"{% endif %}":                                 "endif outside of if",
		"{% set a, b = 1, 2 %}":                       "an assignment",
		"{{ x ? y }}":                                 `the character '?'`,
		"{{ 'ß' | upper }}":                           "applied to 'ß'",
		"{{ raise_exception('no \n way') }}":          "the chat template refuses the messages: no \n way",
	} {
		template, err := Compile("t.jinja", source)
		if err == nil {
			var got string
			got, err = template.Render(nil, Options{})
			if err == nil {
				t.Errorf("%.60q gave %q", source, got)
				continue
			}
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", source, err, want)
		}
		if _, ok := errors.AsType[interface {
			error
			ExitCode() int
		}](err); !ok {
			t.Errorf("%.60q: %T has no exit code", source, err)
		}
	}
}
