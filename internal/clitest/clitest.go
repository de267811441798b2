// Package clitest runs scripts against the tools, in the language of
// [github.com/rogpeppe/go-internal/testscript]. It is for tests only.
//
// A tool's own scripts lie beside it, in cmd/sb-x/testdata/script, and its test file is
//
//	func TestMain(m *testing.M) { clitest.Main(m, map[string]func(){"sb-x": main}) }
//	func TestScripts(t *testing.T) { clitest.Run(t, "testdata/script") }
//
// Scripts that need several tools, pipelines above all, lie in testdata/script of this package, whose test builds all
// tools. There a script that needs a tool begins with "[!exec:sb-plan] skip".
//
// Beyond testscript's own commands there are
//
//	exitcode N PROGRAM ARG...   run a program that must end with exit code N; stdout and stderr can be matched after it
//	size FILE N                 require the size of a file in bytes
//
// and beyond the tools there are the programs
//
//	tty PROGRAM ARG...                        run a program with stdin and stderr on a terminal; what it shows there
//	                                          goes to the stderr of tty, whose stdin is typed
//	interrupt SIGNALS PATTERN PROGRAM ARG...  run a program, its stdin a pipe that stays open; once its output or
//	                                          terminal has a line that the regular expression matches, send it
//	                                          signals, as INT or INT,TERM, one after the other
//
// which end with the exit code of the program they run, 128 plus the signal if one killed it: use them with exitcode.
// jq, where there is one, can be used behind [exec:jq].
package clitest

import (
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Main is the TestMain of a package with scripts. The commands are programs by name: their main functions.
//
// It defines the flag -update: rewrite the files in the scripts that cmp finds different from what a tool wrote, and the
// manuals and completions.
func Main(m *testing.M, commands map[string]func()) {
	flag.Bool("update", false, "rewrite expected and generated files")
	all := map[string]func(){"tty": ttyMain, "interrupt": interruptMain}
	maps.Copy(all, commands)
	testscript.Main(m, all)
}

// Run runs the scripts dir/*.txt as subtests. They find the repository's tiny models in the folder $MODELS.
func Run(t *testing.T, dir string) {
	models, err := modelsFolder()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           dir,
		UpdateScripts: updating(),
		Setup: func(env *testscript.Env) error {
			env.Setenv("MODELS", models)
			return nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitcode,
			"size":     size,
		},
		Condition: condition,
	})
}

// updating is the flag -update.
func updating() bool { return flag.Lookup("update").Value.(flag.Getter).Get().(bool) }

// modelsFolder is testdata/models of the repository that the test runs in.
func modelsFolder() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return filepath.Join(folder, "testdata", "models"), nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("no go.mod above the test's folder")
		}
		folder = parent
	}
}

// condition knows [root]: the test runs as root, whom permissions do not stop.
func condition(name string) (bool, error) {
	if name == "root" {
		return os.Geteuid() == 0, nil
	}
	return false, errors.New("unknown condition")
}

func exitcode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N program [arg...]")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("not an exit code: %s", args[0])
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = status(exit.ProcessState)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func size(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: size file bytes")
	}
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := strconv.FormatInt(info.Size(), 10); (got == args[1]) == neg {
		ts.Fatalf("%s has %s bytes", args[0], got)
	}
}
