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

// printAbout answers --help and --version of the tool itself.
func (t Tool) printAbout(env *Env, question string) error {
	if question == "--version" {
		return env.print(fmt.Sprintf("%s %s\n", t.Name, version()))
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
	fmt.Fprintf(&b, "%s %s\n\nusage:\n  %s\n", strings.TrimSpace(t.Name+" "+v.Name), v.Summary, t.usageLine(v))
	if v.Name == "" {
		for i := range t.Verbs {
			if t.Verbs[i].Name != "" {
				fmt.Fprintf(&b, "  %s\n", t.usageLine(&t.Verbs[i]))
			}
		}
	}
	if v.Long != "" {
		b.WriteString("\n" + strings.TrimSpace(v.Long) + "\n")
	}
	if list := t.verbList(); v.Name == "" && list != "" {
		b.WriteString("\nverbs:\n" + list)
	}
	b.WriteString("\nflags:\n" + fs.FlagUsages())
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

// version is the module's version as the build recorded it.
func version() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("%s (%s %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
