package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/clitest"
	"substrate/internal/jsonio"
)

func TestMain(m *testing.M) {
	clitest.Main(m, map[string]func(){"sb-demo": func() { cli.Main(demoTool()) }})
}

// TestScripts holds the command-line contract: a script for every rule, against a tool that does nothing else.
func TestScripts(t *testing.T) { clitest.Run(t, "testdata/script") }

func demoTool() cli.Tool {
	return cli.Tool{
		Name:    "sb-demo",
		Summary: "shows the rules of the command line",
		Verbs:   []cli.Verb{copyVerb(), failVerb(), waitVerb(), workVerb(), linesVerb()},
	}
}

// copyVerb writes its input document, a JSON object, to its output.
func copyVerb() cli.Verb {
	return cli.Verb{
		Args:    "[DOC]",
		Long:    "The document is a JSON object with one member, n, a number.",
		Example: "sb-demo doc.json -o copy.json",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			maxRAM := cli.MaxRAMFlag(fs)
			cli.ThreadsFlag(fs)
			cli.TimeLimitFlag(fs)
			return func(_ context.Context, env *cli.Env, args []string) error {
				if maxRAM.IsSet() {
					env.Notef("ram cap: %s", maxRAM)
				}
				out, err := env.Create(*output)
				if err != nil {
					return err
				}
				defer out.Abort()
				name, b, err := env.ReadDocument(cli.Arg(args, 0))
				if err != nil {
					return err
				}
				var doc struct {
					N float64 `json:"n"`
				}
				if err := jsonio.Unmarshal(name, b, &doc); err != nil {
					return err
				}
				env.Debugf("n is %v", doc.N)
				if b, err = jsonio.Marshal(doc); err != nil {
					return err
				}
				if _, err := out.Write(b); err != nil {
					return err
				}
				return out.Commit()
			}
		},
	}
}

// failVerb fails in the way that its argument names, with a half-written document.
func failVerb() cli.Verb {
	return cli.Verb{
		Name:    "fail",
		Args:    "KIND",
		Summary: "fails",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			return func(_ context.Context, env *cli.Env, args []string) error {
				out, err := env.Create(*output)
				if err != nil {
					return err
				}
				fmt.Fprint(out, "half")
				switch args[0] {
				case "no":
					return cli.WithHint(cli.No("does not fit"), "give it %d GiB more", 4)
				case "document":
					return cli.BadDocument("plan.json: /ops: bad")
				case "io":
					return fmt.Errorf("reading: %w", cli.IO("crc of record 3 is wrong"))
				case "path":
					_, err := os.ReadFile("absent")
					return err
				case "cap":
					return cli.AboveCap("peak 37 GiB, cap 36 GiB")
				case "unclassified":
					return errors.New("nobody thought of this")
				case "panic":
					panic("broken invariant")
				}
				return cli.Usage("unknown kind %q", args[0])
			}
		},
	}
}

// waitVerb has half a document written and waits for a signal.
func waitVerb() cli.Verb {
	return cli.Verb{
		Name:    "wait",
		Summary: "waits for a signal",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			deaf := fs.Bool("deaf", false, "ignore the first signal")
			return func(ctx context.Context, env *cli.Env, _ []string) error {
				out, err := env.Create(*output)
				if err != nil {
					return err
				}
				defer out.Abort()
				fmt.Fprint(out, "half")
				env.Warnf("ready")
				<-ctx.Done()
				if *deaf {
					time.Sleep(time.Minute)
				}
				return ctx.Err()
			}
		},
	}
}

// workVerb shows progress.
func workVerb() cli.Verb {
	return cli.Verb{
		Name:    "work",
		Summary: "works for a while",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			return func(ctx context.Context, env *cli.Env, _ []string) error {
				p := env.Progress("working", "steps", 10)
				defer p.Close()
				for range 10 {
					time.Sleep(60 * time.Millisecond)
					p.Add(1)
				}
				env.Warnf("nearly done")
				_, err := fmt.Fprintln(env.Stdout, "result")
				return err
			}
		},
	}
}

// linesVerb writes a stream of lines, the last one without its end.
func linesVerb() cli.Verb {
	return cli.Verb{
		Name:    "lines",
		Args:    "N [DOC]",
		Summary: "writes a stream",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			trace := fs.String("trace", "", "write lines to `FILE`")
			return func(_ context.Context, env *cli.Env, args []string) error {
				if len(args) > 1 {
					if _, _, err := env.ReadDocument(args[1]); err != nil {
						return err
					}
				}
				s, err := env.CreateStream(*trace)
				if err != nil {
					return err
				}
				n := 0
				fmt.Sscan(args[0], &n)
				for i := range n {
					fmt.Fprintf(s, "line %d %s\n", i, strings.Repeat("x", 100))
				}
				fmt.Fprint(s, "cut off")
				return s.Close()
			}
		},
	}
}
