package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/jsonio"
)

// Description is what a tool takes, for manuals and completions: its answer to
// the flag --describe, which help does not list.
type Description struct {
	Name    string            `json:"name"`
	Summary string            `json:"summary"`
	Verbs   []VerbDescription `json:"verbs"`
}

// VerbDescription is a verb and its flags, as help shows them.
type VerbDescription struct {
	Name    string            `json:"name"` // "" for the default verb
	Usage   string            `json:"usage"`
	Args    string            `json:"args"`
	Summary string            `json:"summary"`
	Long    string            `json:"long"`
	Example string            `json:"example"`
	Flags   []FlagDescription `json:"flags"`
}

// FlagDescription is a flag. Arg is the name of its value, "" if it takes none.
type FlagDescription struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand"`
	Arg       string `json:"arg"`
	Usage     string `json:"usage"`
}

// describe is what the tool takes.
func (t Tool) describe(env *Env) Description {
	d := Description{Name: t.Name, Summary: t.Summary, Verbs: []VerbDescription{}}
	for i := range t.Verbs {
		v := &t.Verbs[i]
		fs, _ := t.flags(v, env)
		verb := VerbDescription{
			Name: v.Name, Usage: t.usageLine(v), Args: v.Args, Summary: v.Summary, Long: v.Long, Example: v.Example, Flags: []FlagDescription{},
		}
		fs.VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			arg, text := flagText(f)
			verb.Flags = append(verb.Flags, FlagDescription{Name: f.Name, Shorthand: f.Shorthand, Arg: arg, Usage: text})
		})
		d.Verbs = append(d.Verbs, verb)
	}
	return d
}

// flagText is the name of a flag's value, "" if it takes none, and what help
// says of the flag.
func flagText(f *pflag.Flag) (arg, text string) {
	arg, text = pflag.UnquoteUsage(f)
	if f.Value.Type() == "bool" {
		arg = ""
	}
	if !strings.Contains(text, "(default") && !isZero(f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	return strings.ToUpper(arg), text
}

// printDescription answers --describe.
func (t Tool) printDescription(env *Env) error {
	line, err := jsonio.MarshalLine(t.describe(env))
	if err != nil {
		return err
	}
	return env.print(string(line))
}
