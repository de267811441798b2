package chat

import (
	"fmt"
	"slices"
	"strings"
)

// prefix starts the names of what a translation calls. The template's own
// names must not.
const prefix = "py_"

// translator writes a template for the engine whose rendering is Python's of
// the source:
//
//   - literal text becomes a print of a string, since the engine strips white
//     space a little differently;
//   - {{ x }} becomes {{ py_print(x) }}, x|f becomes x|py_f, x.f() becomes
//     x|py_do_f(), x is not f becomes x|py_isnot_f: functions of this package;
//   - a variable set in the body of a loop has its value from before the loop
//     at the start of every round, which the engine lacks;
//   - rounds and calls of macros are counted.
type translator struct {
	out    strings.Builder
	blocks []block
	loops  int // begun so far, for names
}

// block is an open block statement.
type block struct {
	keyword string
	line    int
}

func translate(source string) (string, error) {
	parts, err := lex(source)
	if err != nil {
		return "", err
	}
	t := &translator{}
	for i, p := range parts {
		switch p.kind {
		case 't':
			t.out.WriteString("{{ " + quote(p.text) + " }}")
		case '{':
			if len(p.tokens) == 0 {
				return "", unsupported(p.line, "an empty expression")
			}
			text, err := expression(p.line, p.tokens)
			if err != nil {
				return "", err
			}
			t.out.WriteString("{{ " + prefix + "print(" + text + ") }}")
		case '%':
			if err := t.statement(p, parts[i+1:]); err != nil {
				return "", err
			}
		}
	}
	if n := len(t.blocks); n > 0 {
		return "", unsupported(t.blocks[n-1].line, "a block %q without an end", t.blocks[n-1].keyword)
	}
	return t.out.String(), nil
}

// statement translates a tag {% %}. rest follows it.
func (t *translator) statement(p part, rest []part) error {
	if len(p.tokens) == 0 || p.tokens[0].kind != 'n' {
		return unsupported(p.line, "a statement without a keyword")
	}
	keyword, args := p.tokens[0].text, p.tokens[1:]
	switch keyword {
	case "if":
		t.open(keyword, p.line)
		return t.write(p.line, keyword, args)
	case "elif":
		if t.inner() != "if" {
			return unsupported(p.line, "elif outside of if")
		}
		return t.write(p.line, keyword, args)
	case "else":
		if in := t.inner(); in != "if" && in != "for" || len(args) > 0 {
			return unsupported(p.line, "else outside of if and for")
		}
		return t.write(p.line, keyword, nil)
	case "for":
		return t.loop(p, args, rest)
	case "set":
		return t.set(p.line, args)
	case "macro":
		return t.macro(p.line, args)
	case "break", "continue":
		return t.write(p.line, keyword, args)
	case "generation":
		t.open(keyword, p.line)
		return nil // marks what was generated, for training
	case "endif", "endfor", "endset", "endmacro", "endgeneration":
		return t.end(p.line, strings.TrimPrefix(keyword, "end"))
	}
	return unsupported(p.line, "the statement %q, which this program does not have", keyword)
}

func (t *translator) open(keyword string, line int) {
	t.blocks = append(t.blocks, block{keyword, line})
}

// inner is the keyword of the innermost block.
func (t *translator) inner() string {
	if len(t.blocks) == 0 {
		return ""
	}
	return t.blocks[len(t.blocks)-1].keyword
}

func (t *translator) end(line int, keyword string) error {
	if t.inner() != keyword {
		return unsupported(line, "end%s outside of %s", keyword, keyword)
	}
	t.blocks = t.blocks[:len(t.blocks)-1]
	switch keyword {
	case "generation":
		return nil
	case "macro":
		t.out.WriteString("{{ " + prefix + "leave() }}")
	}
	return t.write(line, "end"+keyword, nil)
}

// write writes a tag: a keyword and an expression.
func (t *translator) write(line int, keyword string, tokens []token) error {
	if len(t.blocks) > maxBlocks {
		return unsupported(line, "blocks more than %d deep", maxBlocks)
	}
	text, err := expression(line, tokens)
	if err != nil {
		return err
	}
	fmt.Fprintf(&t.out, "{%% %s %s %%}", keyword, text)
	return nil
}

// loop translates {% for a, b in list if condition %}.
func (t *translator) loop(p part, args []token, rest []part) error {
	in := slices.IndexFunc(args, func(a token) bool { return a.kind == 'n' && a.text == "in" })
	targets := names(args[:max(in, 0)])
	switch {
	case in < 0 || len(targets) < 1 || len(targets) > 2:
		return unsupported(p.line, "a loop that is not over one or two variables")
	case slices.ContainsFunc(args, func(a token) bool { return a.kind == 'n' && a.text == "recursive" }):
		return unsupported(p.line, "a recursive loop")
	case len(targets) == 2 && outside(args[in:], "if"):
		return unsupported(p.line, "a loop over two variables with a condition")
	}
	t.loops++
	set := slices.DeleteFunc(setInLoop(rest), func(name string) bool { return slices.Contains(targets, name) })
	for _, name := range set {
		fmt.Fprintf(&t.out, "{%% set %sloop_%d_%s = %s %%}", prefix, t.loops, name, name)
	}
	t.open("for", p.line)
	if err := t.write(p.line, "for", args); err != nil {
		return err
	}
	t.out.WriteString("{{ " + prefix + "round() }}")
	for _, name := range set {
		fmt.Fprintf(&t.out, "{%% set %s = %sloop_%d_%s %%}", name, prefix, t.loops, name)
	}
	return nil
}

// outside reports whether a keyword or operator stands outside of brackets,
// inBrackets whether it stands in some.
func outside(tokens []token, text string) bool {
	return stands(tokens, text, func(depth int) bool { return depth == 0 })
}

func inBrackets(tokens []token, text string) bool {
	return stands(tokens, text, func(depth int) bool { return depth > 0 })
}

// stands reports whether a keyword or operator stands at a depth of brackets.
func stands(tokens []token, text string, depth func(int) bool) bool {
	n := 0
	for _, t := range tokens {
		switch {
		case t.kind == 's':
		case strings.Contains("([{", t.text):
			n++
		case strings.Contains(")]}", t.text):
			n--
		case t.text == text && depth(n):
			return true
		}
	}
	return false
}

// names splits "a, b".
func names(tokens []token) []string {
	var list []string
	for i, t := range tokens {
		if want := byte("no"[i%2]); t.kind != want || want == 'o' && t.text != "," {
			return nil
		}
		if t.kind == 'n' {
			list = append(list, t.text)
		}
	}
	return list
}

// setInLoop lists the variables that the body of a loop, which the parts
// begin with, sets in its own scope.
func setInLoop(parts []part) []string {
	var list []string
	depth := 1
	for _, p := range parts {
		if p.kind != '%' || len(p.tokens) == 0 {
			continue
		}
		switch p.tokens[0].text {
		case "for", "macro":
			depth++
		case "endfor", "endmacro":
			if depth--; depth == 0 {
				return list
			}
		case "set":
			name := p.tokens[1:]
			if depth == 1 && len(name) > 0 && (len(name) == 1 || name[1].text == "=") && !slices.Contains(list, name[0].text) {
				list = append(list, name[0].text)
			}
		}
	}
	return list
}

// set translates {% set a = x %}, {% set a.b = x %} and {% set a %}.
func (t *translator) set(line int, args []token) error {
	target, value := args, []token(nil)
	if i := slices.IndexFunc(args, func(a token) bool { return a.kind == 'o' && a.text == "=" }); i >= 0 {
		target, value = args[:i], args[i+1:]
	}
	member := len(target) == 3 && target[1].text == "." && target[2].kind == 'n'
	if len(target) == 0 || target[0].kind != 'n' || len(target) != 1 && !member || value == nil && (len(args) != 1) {
		return unsupported(line, "an assignment to something else than one variable")
	}
	if value == nil {
		t.open("set", line)
		return t.write(line, "set", target)
	}
	text, err := expression(line, value)
	if err != nil {
		return err
	}
	name := target[0].text
	if member {
		name += "." + target[2].text
	}
	fmt.Fprintf(&t.out, "{%% set %s = %svalue(%s) %%}", name, prefix, text)
	return nil
}

// macro translates {% macro f(a, b=1) %}. The engine cuts its parameters at
// commas.
func (t *translator) macro(line int, args []token) error {
	n := len(args)
	if n < 3 || args[0].kind != 'n' || args[1].text != "(" || args[n-1].text != ")" {
		return unsupported(line, "a macro without parameters in brackets")
	}
	if inBrackets(args[2:n-1], ",") || slices.ContainsFunc(args, func(a token) bool { return a.kind == 's' && strings.Contains(a.text, ",") }) {
		return unsupported(line, "a macro with a comma in a default value")
	}
	t.open("macro", line)
	if err := t.write(line, "macro", args); err != nil {
		return err
	}
	t.out.WriteString("{{ " + prefix + "enter() }}")
	return nil
}

// quote is a string as a literal of the engine.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// expression writes the tokens of an expression.
func expression(line int, tokens []token) (string, error) {
	var b strings.Builder
	at := func(i int) (t token) {
		if i < len(tokens) {
			t = tokens[i]
		}
		return t
	}
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		op := t.kind == 'o'
		switch {
		case t.kind == 's':
			b.WriteString(quote(t.text) + " ")
		case t.kind == 'n' && strings.HasPrefix(t.text, prefix):
			return "", unsupported(line, "the name %q, which this program uses itself", t.text)
		case op && (t.text == "*" || t.text == "**" || t.text == "/" || t.text == "//"):
			return "", unsupported(line, "the operator %s", t.text)
		case op && t.text == "|":
			if at(i+1).kind != 'n' {
				return "", unsupported(line, "a filter without a name")
			}
			b.WriteString("|" + prefix + at(i+1).text + " ")
			i++
		case op && t.text == "." && at(i+1).kind == 'n':
			if next := at(i + 2); next.kind == 'o' && next.text == "(" {
				b.WriteString("|" + prefix + "do_" + at(i+1).text)
			} else {
				b.WriteString("." + at(i+1).text + " ")
			}
			i++
		case t.kind == 'n' && t.text == "is":
			name := prefix + "is_"
			if i++; at(i).kind == 'n' && at(i).text == "not" {
				name = prefix + "isnot_"
				i++
			}
			if at(i).kind != 'n' || argumentFollows(at(i+1)) {
				return "", unsupported(line, "a test in a form that this program does not know")
			}
			b.WriteString("|" + name + at(i).text + " ")
		default:
			b.WriteString(t.text + " ")
		}
	}
	return strings.TrimSuffix(b.String(), " "), nil
}

// argumentFollows reports whether a token begins the argument of a test that
// has no brackets, "x is divisibleby 3".
func argumentFollows(t token) bool {
	switch t.kind {
	case 'o':
		return t.text == "[" || t.text == "{"
	case 'n':
		return !slices.Contains([]string{"and", "or", "else", "if", "in", "not", "is"}, t.text)
	}
	return t.kind != 0
}
