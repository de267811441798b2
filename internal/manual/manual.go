// Package manual makes the manual pages and shell completions of the tools. A
// page is prose written by hand, man/src/NAME.1.in, in which lines beginning
// with @ stand for what is generated:
//
//	@name             the NAME section
//	@synopsis         the SYNOPSIS section, with a line for every verb
//	@options          the flags of all verbs, with the help texts of the verbs
//	@fields TYPE      the members of a document, from the Go type and its comments
//	@exit             the EXIT STATUS section
//
// What is generated comes from the tools themselves, by their flag --describe,
// and from the sources of pkg/doc, so that it cannot be wrong for long: a test
// compares the files, and `make man` writes them.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"substrate/internal/cli"
)

// Files makes every page and completion, by path below the repository's root.
func Files(root string, tools []cli.Description) (map[string]string, error) {
	types, err := readTypes(filepath.Join(root, "pkg", "doc"), filepath.Join(root, "pkg", "trace"))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, t := range tools {
		source := filepath.Join(root, "man", "src", t.Name+".1.in")
		b, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		page, err := expand(string(b), &t, types)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		files["man/"+t.Name+".1"] = page
		files["completions/bash/"+t.Name] = bash(&t)
		files["completions/zsh/_"+t.Name] = zsh(&t)
		files["completions/fish/"+t.Name+".fish"] = fish(&t)
	}
	return files, nil
}

// expand replaces the directives of a page.
func expand(source string, t *cli.Description, types types) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Generated from man/src/%s.1.in and the tool's flags by `make man`. DO NOT EDIT.\n", t.Name)
	fmt.Fprintf(&b, ".TH %s 1 \"\" substrate \"Substrate manual\"\n", strings.ToUpper(t.Name))
	n, code := 0, false
	for line := range strings.Lines(source) {
		n++
		directive, argument, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var err error
		switch directive {
		case "@name":
			fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(t.Name), escape(t.Summary))
		case "@synopsis":
			synopsis(&b, t)
		case "@options":
			options(&b, t)
		case "@fields":
			err = types.write(&b, argument)
		case "@exit":
			b.WriteString(exitStatus)
		default:
			if strings.HasPrefix(directive, "@") {
				err = fmt.Errorf("unknown directive %s", directive)
			}
			if code = (code || directive == ".EX") && directive != ".EE"; code && directive != ".EX" {
				line = escape(line) + "\n"
			} else if !strings.HasPrefix(line, ".") {
				line = strings.NewReplacer(`\-`, `\-`, "-", `\-`).Replace(line)
			}
			b.WriteString(line)
		}
		if err != nil {
			return "", fmt.Errorf("line %d: %w", n, err)
		}
	}
	return b.String(), nil
}

const exitStatus = `.SH EXIT STATUS
.TP
0
done
.TP
1
the answer is no: infeasible, refused before work began, a mismatch
.TP
2
the command line is wrong
.TP
3
an input document is not what it should be
.TP
4
reading or writing failed, a file is corrupt, a device is out of memory
.TP
5
the run ended, but its measured peak was above the cap
.TP
70
a defect of the tool
.TP
130, 143
a signal ended it: SIGINT, SIGTERM
.PP
Messages go to standard error: lines "tool: error: ..." and, with a remedy, "tool: hint: ...".
`

func synopsis(b *strings.Builder, t *cli.Description) {
	b.WriteString(".SH SYNOPSIS\n.nf\n")
	for _, v := range t.Verbs {
		fmt.Fprintf(b, "%s\n", escape(v.Usage))
	}
	b.WriteString(".fi\n")
}

func options(b *strings.Builder, t *cli.Description) {
	b.WriteString(".SH OPTIONS\n")
	if len(t.Verbs) > 1 {
		b.WriteString("A verb comes before its flags. Every verb has \\fB\\-\\-help\\fR.\n")
	}
	for _, v := range t.Verbs {
		if len(t.Verbs) > 1 {
			fmt.Fprintf(b, ".SS %s\n", escape(v.Usage))
			if v.Summary != "" {
				fmt.Fprintf(b, "%s\n", escape(sentence(v.Summary)))
			}
		}
		for paragraph := range strings.SplitSeq(strings.TrimSpace(v.Long), "\n\n") {
			if paragraph != "" {
				fmt.Fprintf(b, ".PP\n%s\n", escape(paragraph))
			}
		}
		for _, f := range v.Flags {
			b.WriteString(".TP\n" + flagHead(f) + "\n" + escape(f.Usage) + "\n")
		}
	}
}

// flagHead is "-n, --max-tokens N" in bold and italics.
func flagHead(f cli.FlagDescription) string {
	head := "\\fB" + escape("--"+f.Name) + "\\fR"
	if f.Shorthand != "" {
		head = "\\fB" + escape("-"+f.Shorthand) + "\\fR, " + head
	}
	if f.Arg != "" {
		head += " \\fI" + escape(f.Arg) + "\\fR"
	}
	return head
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

// escape writes text as roff takes it.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.TrimSpace(s))
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r > unicode.MaxASCII {
			fmt.Fprintf(&b, `\[u%04X]`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
