package chat

import (
	"errors"
	"fmt"
	"io"

	"github.com/ardanlabs/jinja"

	"substrate/internal/jsonio"
)

// Message is one message of a conversation. Its members keep their order.
type Message struct {
	Members []Member
}

// Member is a member of a message; all are strings.
type Member struct {
	Name, Value string
}

// NewMessage makes a message of a role and what it says.
func NewMessage(role, content string) Message {
	return Message{[]Member{{"role", role}, {"content", content}}}
}

// Get is the value of a member, "" if there is none.
func (m Message) Get(name string) string {
	for _, e := range m.Members {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// Role is who speaks: "system", "user", "assistant".
func (m Message) Role() string { return m.Get("role") }

// Content is what is said.
func (m Message) Content() string { return m.Get("content") }

func messageValues(messages []Message) jinja.Value {
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		list[i] = jinja.NewDict()
		for _, e := range m.Members {
			list[i].AsDict().Set(e.Name, jinja.NewString(e.Value))
		}
	}
	return jinja.NewList(list)
}

// ReadMessages reads messages, one JSON object a line: role and content and
// what else the template knows, all of them strings. The name starts errors,
// which are of [*jsonio.Error]. A message is at most limit bytes of JSON.
func ReadMessages(name string, r io.Reader, limit int) ([]Message, error) {
	var messages []Message
	d := jsonio.NewDecoder(name, r, limit)
	for {
		line, err := d.Next()
		if err == io.EOF {
			return messages, nil
		}
		if err != nil {
			return messages, err
		}
		m, err := ParseMessage(name, line)
		if e, ok := errors.AsType[*jsonio.Error](err); ok {
			e.Line, e.Column = d.Line(), 0
		}
		if err != nil {
			return messages, err
		}
		messages = append(messages, m)
	}
}

// ParseMessage reads one message.
func ParseMessage(name string, line []byte) (Message, error) {
	var m Message
	members, err := jsonio.Members(name, line)
	if err != nil {
		return m, err
	}
	for _, e := range members {
		if e.Value.Kind() != '"' {
			reason := "want a string: tool calls and content in parts are not supported"
			return m, &jsonio.Error{File: name, Pointer: jsonio.Pointer("").AppendToken(e.Name), Reason: reason}
		}
		var value string
		if err := jsonio.UnmarshalLoose(name, e.Value, &value); err != nil {
			return m, err
		}
		m.Members = append(m.Members, Member{e.Name, value})
	}
	for _, want := range [...]string{"role", "content"} {
		if !m.has(want) {
			return m, &jsonio.Error{File: name, Reason: fmt.Sprintf("the message has no %q", want)}
		}
	}
	return m, nil
}

func (m Message) has(name string) bool {
	for _, e := range m.Members {
		if e.Name == name {
			return true
		}
	}
	return false
}
