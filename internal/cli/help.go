package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

const exitHelp = `exit status:
  0 ok   1 no (infeasible, refused before work, mismatch)   2 usage   3 bad document
  4 input, output or corruption   5 measured peak above the cap   70 internal error
`

// helpWidth is the width in bytes that help is wrapped to.
const helpWidth = 96

// printAbout answers --help and --version of the tool itself.
func (t Tool) printAbout(env *Env, question string) error {
	switch question {
	case "--version":
		return env.print(fmt.Sprintf("%s %s\n", t.Name, version()))
	case "--describe":
		return t.printDescription(env)
	}
	if v := t.verb(""); v != nil {
		fs, _ := t.flags(v, env)
		return env.print(t.verbHelp(v, fs))
	}
	return env.print(t.toolHelp())
}

func (t Tool) toolHelp() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n\nusage:\n", t.Name, t.Summary)
	for i := range t.Verbs {
		fmt.Fprintf(&b, "  %s\n", t.usageLine(&t.Verbs[i]))
	}
	b.WriteString("\nverbs:\n" + t.verbList())
	fmt.Fprintf(&b, "\nEach verb has its own help: %s VERB --help.\n\n%s", t.Name, exitHelp)
	return b.String()
}

func (t Tool) verbHelp(v *Verb, fs *pflag.FlagSet) string {
	var b strings.Builder
	if v.Name == "" {
		fmt.Fprintf(&b, "%s %s\n", t.Name, t.Summary)
	} else {
		fmt.Fprintf(&b, "%s %s %s\n", t.Name, v.Name, v.Summary)
	}
	fmt.Fprintf(&b, "\nusage:\n  %s\n", t.usageLine(v))
	list := ""
	if v.Name == "" {
		list = t.verbList()
	}
	if list != "" {
		fmt.Fprintf(&b, "  %s VERB [flags] [ARG], see %s VERB --help\n", t.Name, t.Name)
	}
	if v.Long != "" {
		b.WriteString("\n")
		for line := range strings.Lines(strings.TrimSpace(v.Long)) {
			b.WriteString(strings.Join(wrap(line, helpWidth), "\n") + "\n")
		}
	}
	if list != "" {
		b.WriteString("\nverbs:\n" + list)
	}
	b.WriteString("\nflags:\n" + flagList(fs))
	if v.Example != "" {
		b.WriteString("\nexamples:\n")
		for line := range strings.Lines(strings.TrimSpace(v.Example)) {
			b.WriteString("  " + strings.TrimSpace(line) + "\n")
		}
	}
	b.WriteString("\n" + exitHelp)
	return b.String()
}

func (t Tool) verbList() string {
	width := 0
	for _, name := range t.verbNames() {
		width = max(width, len(name))
	}
	var b strings.Builder
	for _, v := range t.Verbs {
		if v.Name != "" {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, v.Name, v.Summary)
		}
	}
	return b.String()
}

func (t Tool) usageLine(v *Verb) string {
	words := []string{t.Name, v.Name, "[flags]", v.Args}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

func (t Tool) helpCommand(v *Verb) string {
	return strings.Join(strings.Fields(t.Name+" "+v.Name+" --help"), " ")
}

// flagList is the flags, each with its text beside it, wrapped.
func flagList(fs *pflag.FlagSet) string {
	const indent = 26
	var b strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		left := "      --" + f.Name
		if f.Shorthand != "" {
			left = "  -" + f.Shorthand + ", --" + f.Name
		}
		arg, text := flagText(f)
		if arg != "" {
			left += " " + arg
		}
		if len(left) > indent-2 {
			b.WriteString(left + "\n")
			left = ""
		}
		for i, line := range wrap(text, helpWidth-indent) {
			if i > 0 {
				left = ""
			}
			fmt.Fprintf(&b, "%-*s%s\n", indent, left, line)
		}
	})
	return b.String()
}

// isZero reports whether a flag's default is as good as none.
func isZero(value string) bool {
	switch value {
	case "", "0", Size(0).String(), "false", "[]":
		return true
	}
	return false
}

// wrap cuts text into lines of at most width bytes, longer words apart.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// version is the module's version as the build recorded it.
func version() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("%s (%s %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
