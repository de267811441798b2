// Package cli is the command line of the seven tools: verbs, flags, exit codes, documents in and out, messages,
// progress and signals. A tool is a value:
//
//	func main() {
//		cli.Main(cli.Tool{
//			Name:    "sb-plan",
//			Summary: "decides offline which op gets which precision and residency",
//			Verbs:   []cli.Verb{solveVerb(), showVerb()},
//		})
//	}
//
// and a verb binds its flags to variables of its own before it runs:
//
//	func showVerb() cli.Verb {
//		return cli.Verb{
//			Name:    "show",
//			Args:    "[PLAN]",
//			Summary: "prints a plan to read",
//			Setup: func(fs *pflag.FlagSet) cli.RunFunc {
//				op := fs.String("op", "", "show the ladder of this `OP` only")
//				return func(ctx context.Context, env *cli.Env, args []string) error {
//					name, b, err := env.ReadDocument(cli.Arg(args, 0))
//					...
//				}
//			},
//		}
//	}
//
// The rules that hold for all tools: stdout carries the result and nothing else, a document whole or not at all; stderr
// carries lines "sb-plan: error: ...", "sb-plan: hint: ...", lower case and without a full stop, and progress; the exit
// code tells the class of an error, see the constants.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

// Tool is a program.
type Tool struct {
	Name    string // "sb-plan"
	Summary string // what it does, one line, a verb in the third person: "solves ..."
	Verbs   []Verb // one of them may have no name: it runs if the first argument names none
}

// Verb is one thing that a tool does.
type Verb struct {
	Name    string // "" for the default verb
	Args    string // positional arguments: "STORE", "[TABLE]" for an optional one, "[PLAN...]" for any number
	Summary string // one line, as of a Tool; the default verb has the tool's
	Long    string // further paragraphs of the help text, may be empty
	Example string // commands to try, one a line, may be empty

	// Setup defines the verb's flags on fs and returns the function to run with them.
	Setup func(fs *pflag.FlagSet) RunFunc
}

// RunFunc does a verb's work. args are the positional arguments, their number is right already. ctx ends at SIGINT and
// SIGTERM: return ctx.Err() soon then. The class of the error decides the exit code, see [ExitCode]. A panic is an
// internal error, exit code 70; only one in a goroutine that the verb started is beyond our reach and ends with Go's 2.
type RunFunc func(ctx context.Context, env *Env, args []string) error

// Main runs the tool on the process's arguments and streams and exits.
func Main(t Tool) {
	os.Exit(Run(t, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run runs the tool and returns its exit code.
func Run(t Tool, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	env := newEnv(t.Name, stdin, stdout, stderr)
	defer env.close()
	defer func() {
		if r := recover(); r != nil {
			env.discard()
			env.message("error", fmt.Sprintf("internal error: %v\n%s", r, debug.Stack()))
			env.message("hint", "this is a defect of "+t.Name+", please report it with the lines above")
			code = ExitInternal
		}
	}()
	return env.report(t.run(env, args))
}

func (t Tool) run(env *Env, args []string) error {
	verb, rest, err := t.choose(args)
	if err != nil {
		return err
	}
	if verb == nil {
		return t.printAbout(env, args[0])
	}
	fs, do := t.flags(verb, env)
	if err := fs.Parse(rest); errors.Is(err, pflag.ErrHelp) {
		return env.print(t.verbHelp(verb, fs))
	} else if err != nil {
		return WithHint(Usage("%w", err), "see %s", t.helpCommand(verb))
	}
	if err := checkArgs(verb.Args, fs.Args()); err != nil {
		if f := fs.Lookup("model"); f != nil && f.Value.String() == "" {
			err = WithHint(err, "--model names the model")
		}
		return WithHint(err, "usage: %s", t.usageLine(verb))
	}
	if name := Arg(fs.Args(), 0); verb.Name == "" && name != "" && t.verb(name) != nil {
		if _, err := os.Stat(name); err != nil {
			return WithHint(Usage("%s: a verb comes before the flags", name), "try: %s %s", t.Name, name)
		}
	}
	return do(env.ctx, env, fs.Args())
}

// flags defines the flags of a verb and the ones that every verb has.
func (t Tool) flags(v *Verb, env *Env) (*pflag.FlagSet, RunFunc) {
	fs := pflag.NewFlagSet(t.Name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {} // help is ours
	do := v.Setup(fs)
	fs.BoolVarP(&env.Quiet, "quiet", "q", false, "no progress and no notes on stderr")
	fs.BoolVarP(&env.Verbose, "verbose", "v", false, "say more on stderr")
	return fs, do
}

// choose finds the verb that the arguments name and those that are left for it. No verb and no error: args[0] asks
// about the tool.
func (t Tool) choose(args []string) (*Verb, []string, error) {
	if len(args) > 0 {
		switch args[0] {
		case "-h", "--help", "--version", "--describe":
			return nil, nil, nil
		}
		if v := t.verb(args[0]); v != nil && args[0] != "" {
			return v, args[1:], nil
		}
	}
	if v := t.verb(""); v != nil {
		return v, args, nil
	}
	hint := fmt.Sprintf("verbs: %s; see %s --help", strings.Join(t.verbNames(), ", "), t.Name)
	switch {
	case len(args) == 0:
		return nil, nil, WithHint(Usage("a verb is missing"), "%s", hint)
	case strings.HasPrefix(args[0], "-"):
		return nil, nil, WithHint(Usage("a verb comes before the flags"), "%s", hint)
	}
	return nil, nil, WithHint(Usage("unknown verb %q", args[0]), "%s", hint)
}

func (t Tool) verb(name string) *Verb {
	for i := range t.Verbs {
		if t.Verbs[i].Name == name {
			return &t.Verbs[i]
		}
	}
	return nil
}

func (t Tool) verbNames() []string {
	var names []string
	for _, v := range t.Verbs {
		if v.Name != "" {
			names = append(names, v.Name)
		}
	}
	return names
}

// Arg is args[i], or "" if there are not as many.
func Arg(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

// checkArgs compares the number of arguments with a pattern such as "STORE [PLAN...]".
func checkArgs(pattern string, args []string) error {
	least, most := 0, 0
	for _, word := range strings.Fields(pattern) {
		if !strings.HasPrefix(word, "[") {
			least++
			if len(args) < least {
				return Usage("the argument %s is missing", strings.TrimSuffix(word, "..."))
			}
		}
		most++
		if strings.HasSuffix(strings.TrimSuffix(word, "]"), "...") {
			return nil
		}
	}
	if len(args) > most {
		return Usage("unexpected argument %q", args[most])
	}
	return nil
}
