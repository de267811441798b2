package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a template. The largest of real models have 25 KB, tags of some hundred tokens and blocks ten deep.
const (
	maxTemplateBytes = 1 << 20
	maxTagTokens     = 2000
	maxBrackets      = 30
	maxBlocks        = 50
)

// part is a piece of a template: literal text or a tag.
type part struct {
	kind   byte   // 't' text, '{' expression, '%' statement
	text   string // of literal text, its white space as rendered
	tokens []token
	line   int
}

// token is a token of an expression.
type token struct {
	kind byte   // 'n' name, 's' string, 'd' number, 'o' operator
	text string // of a string, what it stands for
}

// lexer cuts a template into parts by the rules of Jinja2's lexer with trim_blocks and lstrip_blocks.
type lexer struct {
	rest      string
	line      int
	lineStart bool // what was read last ends a line
	parts     []part
}

func lex(source string) ([]part, error) {
	if len(source) > maxTemplateBytes {
		return nil, unsupported(0, "%d bytes, at most %d", len(source), maxTemplateBytes)
	}
	if !utf8.ValidString(source) {
		return nil, unsupported(0, "text that is not UTF-8")
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{rest: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.rest != "" {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.parts, nil
}

// take moves over the next n bytes.
func (l *lexer) take(n int) string {
	s := l.rest[:n]
	l.line += strings.Count(s, "\n")
	l.rest = l.rest[n:]
	return s
}

// next reads literal text and the tag after it.
func (l *lexer) next() error {
	at := tagStart(l.rest)
	if at < 0 {
		l.literal(l.take(len(l.rest)))
		return nil
	}
	kind := l.rest[at+1]
	sign := byte(0)
	if at+2 < len(l.rest) && (l.rest[at+2] == '-' || l.rest[at+2] == '+') {
		sign = l.rest[at+2]
	}
	text := l.rest[:at]
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign == 0 && kind != '{':
		text = l.stripIndent(text)
	}
	l.literal(text)
	l.take(at + 2)
	if sign != 0 {
		l.take(1)
	}
	if kind == '#' {
		return l.comment()
	}
	return l.tag(kind)
}

// tagStart finds the next tag, -1 if there is none.
func tagStart(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// stripIndent drops the white space between the start of a line and a tag.
func (l *lexer) stripIndent(text string) string {
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.lineStart) && strings.TrimLeftFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

func (l *lexer) literal(text string) {
	if text != "" {
		l.parts = append(l.parts, part{kind: 't', text: text, line: l.line})
	}
}

func (l *lexer) comment() error {
	end := strings.Index(l.rest, "#}")
	if end < 0 {
		return unsupported(l.line, "a comment without an end")
	}
	l.close(end, 2, '#')
	return nil
}

// close moves over the end of a tag of n bytes that begins at end, or one byte before that with its sign, and over the
// white space after it that belongs to it.
func (l *lexer) close(end, n int, kind byte) {
	sign := byte(0)
	if end > 0 {
		sign = l.rest[end-1]
	}
	last := l.take(end + n)
	switch {
	case sign == '-':
		if space := len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)); space > 0 {
			last = l.take(space)
		}
	case sign != '+' && kind != '{' && strings.HasPrefix(l.rest, "\n"):
		last = l.take(1)
	}
	l.lineStart = strings.HasSuffix(last, "\n")
}

// tag reads the tokens of a tag and its end.
func (l *lexer) tag(kind byte) error {
	p := part{kind: kind, line: l.line}
	closer := "}}"
	if kind == '%' {
		closer = "%}"
	}
	depth := 0
	for {
		trimmed := strings.TrimLeftFunc(l.rest, isSpace)
		l.take(len(l.rest) - len(trimmed))
		if depth == 0 {
			for _, sign := range [...]string{"", "-", "+"} {
				if sign == "+" && kind == '{' {
					continue // there it is an operator
				}
				if strings.HasPrefix(l.rest, sign+closer) {
					l.close(len(sign), 2, kind)
					l.parts = append(l.parts, p)
					return nil
				}
			}
		}
		t, n, err := nextToken(l.rest)
		if err != nil {
			return unsupported(l.line, "%v", err)
		}
		if n == 0 {
			return unsupported(p.line, "a tag without an end")
		}
		switch t.text {
		case "(", "[", "{":
			if t.kind == 'o' {
				depth++
			}
		case ")", "]", "}":
			if t.kind == 'o' {
				depth--
			}
		}
		p.tokens = append(p.tokens, t)
		switch {
		case depth > maxBrackets:
			return unsupported(l.line, "brackets more than %d deep", maxBrackets)
		case depth < 0:
			return unsupported(l.line, "a bracket that was not opened")
		case len(p.tokens) > maxTagTokens:
			return unsupported(l.line, "a tag of more than %d tokens", maxTagTokens)
		}
		l.take(n)
	}
}

// operators, longer ones first.
var operators = [...]string{
	"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "=", "|", "~", ".", ",", ":", "(", ")", "[", "]", "{", "}",
}

// nextToken reads the token that s begins with, of n bytes; none if s is empty.
func nextToken(s string) (t token, n int, err error) {
	if s == "" {
		return t, 0, nil
	}
	switch c := s[0]; {
	case isLetter(c):
		for n < len(s) && (isLetter(s[n]) || isDigit(s[n])) {
			n++
		}
		return token{kind: 'n', text: s[:n]}, n, nil
	case isDigit(c):
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		if n < len(s) && (isLetter(s[n]) || s[n] == '.' && n+1 < len(s) && isDigit(s[n+1])) {
			return t, 0, fmt.Errorf("a number that is not a decimal integer")
		}
		return token{kind: 'd', text: s[:n]}, n, nil
	case c == '\'' || c == '"':
		return quoted(s)
	}
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return token{kind: 'o', text: op}, len(op), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(s)
	return t, 0, fmt.Errorf("the character %q", r)
}

// Escape sequences of one character, and what they stand for.
const (
	escapes = `\'"nrtabfv`
	escaped = "\\'\"\n\r\t\a\b\f\v"
)

// quoted reads a string literal.
func quoted(s string) (t token, n int, err error) {
	var b strings.Builder
	for n = 1; n < len(s); n++ {
		switch {
		case s[n] == s[0]:
			return token{kind: 's', text: b.String()}, n + 1, nil
		case s[n] != '\\':
			b.WriteByte(s[n])
			continue
		}
		if n++; n == len(s) {
			break
		}
		switch c := s[n]; {
		case strings.IndexByte(escapes, c) >= 0:
			b.WriteByte(escaped[strings.IndexByte(escapes, c)])
		case c == '\n': // goes on in the next line
		case c == 'u', c == 'x':
			digits := 2
			if c == 'u' {
				digits = 4
			}
			var r rune
			if len(s) < n+1+digits {
				return t, 0, fmt.Errorf("a string without an end")
			}
			if _, err := fmt.Sscanf(s[n+1:n+1+digits], "%x", &r); err != nil || !utf8.ValidRune(r) {
				return t, 0, fmt.Errorf("the escape sequence %q", s[n-1:n+1+digits])
			}
			b.WriteRune(r)
			n += digits
		case c == 'N', c == 'U', isDigit(c):
			return t, 0, fmt.Errorf("the escape sequence \\%c", c)
		default: // is none
			b.WriteString(s[n-1 : n+1])
		}
	}
	return t, 0, fmt.Errorf("a string without an end")
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// isSpace reports what str.isspace and \s of Python take for white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }
