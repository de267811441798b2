package chat

import (
	"errors"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Template is a compiled chat template. Goroutines may share one.
type Template struct {
	name     string
	compiled *jinja.Template
}

// Options are what a template is given beside the messages.
type Options struct {
	// AddGenerationPrompt asks for the start of the assistant's answer.
	AddGenerationPrompt bool
	// Tokens are the texts of special tokens by name: "bos_token",
	// "eos_token" ...
	Tokens map[string]string
	// Date is what strftime_now tells. Zero: a template that asks for the
	// date is refused.
	Date time.Time
}

// Compile reads a template. The name, usually of its file, starts errors.
func Compile(name, source string) (*Template, error) {
	text, err := translate(source)
	if err != nil {
		return nil, named(name, err)
	}
	compiled, err := jinja.Compile(text)
	if err != nil {
		return nil, &UnsupportedError{Name: name, Reason: "a form that this program does not know: " + err.Error()}
	}
	return &Template{name, compiled}, nil
}

// Render turns messages into a prompt. An error is an [*UnsupportedError], or
// a [*RaisedError] of the template itself.
func (t *Template) Render(messages []Message, o Options) (prompt string, err error) {
	r := &rendering{date: o.Date}
	values := map[string]jinja.Value{
		"messages":              messageValues(messages),
		"tools":                 jinja.None(),
		"documents":             jinja.None(),
		"add_generation_prompt": jinja.NewBool(o.AddGenerationPrompt),
	}
	for name, text := range o.Tokens {
		values[name] = jinja.NewString(text)
	}
	r.define(values)
	defer func() { // the engine panics on some misuse of values
		if p := recover(); p != nil {
			err = &UnsupportedError{Name: t.name, Reason: "an operation that this program does not have"}
		}
	}()
	prompt, err = t.compiled.RenderValues(values)
	if err == nil {
		return prompt, nil
	}
	if raised, ok := errors.AsType[*RaisedError](err); ok {
		return "", raised
	}
	return "", named(t.name, err)
}

// named gives an error the name of its template.
func named(name string, err error) error {
	if e, ok := errors.AsType[*UnsupportedError](err); ok {
		e.Name = name
		return e
	}
	// The engine's own errors speak of the names of the translation.
	reason := strings.NewReplacer(
		`unknown filter "`+prefix+`do_`, `the method "`, `unknown filter "`+prefix+`is_`, `the test "`,
		`unknown filter "`+prefix+`isnot_`, `the test "`, `unknown filter "`+prefix, `the filter "`).Replace(err.Error())
	return &UnsupportedError{Name: name, Reason: reason}
}
