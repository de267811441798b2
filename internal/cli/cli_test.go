package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/pflag"

	"substrate/internal/jsonio"
)

type errAboveCap struct{}

func (errAboveCap) Error() string { return "above" }
func (errAboveCap) ExitCode() int { return ExitAboveCap }

func TestExitCode(t *testing.T) {
	_, missing := os.Open("absent")
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{Usage("x"), 2},
		{No("x"), 1},
		{BadDocument("x"), 3},
		{IO("x"), 4},
		{AboveCap("x"), 5},
		{errAboveCap{}, 5},
		{WithHint(fmt.Errorf("wrapped: %w", No("x")), "y"), 1},
		{errors.Join(errors.New("x"), No("y")), 1},
		{No("not above: %w", errAboveCap{}), 1}, // the outer class wins
		{jsonio.Errorf("f", "/a", "x"), 3},
		{fmt.Errorf("x: %w", jsonio.Errorf("f", "/a", "y")), 3},
		{jsonio.UnmarshalLoose("f", []byte("{"), new(any)), 3}, // wraps an unexpected EOF
		{jsonio.Within("f", "/a", missing), 4},
		{missing, 4},
		{os.NewSyscallError("mmap", syscall.ENOMEM), 4},
		{syscall.ENOSPC, 4},
		{&fs.PathError{Op: "read", Path: "x", Err: io.ErrUnexpectedEOF}, 4},
		{fmt.Errorf("header: %w", io.ErrUnexpectedEOF), 4},
		{&os.LinkError{Op: "rename", Err: syscall.EXDEV}, 4},
		{errors.New("x"), 70},
		{context.Canceled, 70},
		{&interruption{syscall.SIGINT}, 130},
		{&interruption{syscall.SIGTERM}, 143},
	}
	for _, test := range tests {
		if got := ExitCode(test.err); got != test.want {
			t.Errorf("%v: exit code %d, want %d", test.err, got, test.want)
		}
	}
	if WithHint(nil, "x") != nil {
		t.Error("an error out of nothing")
	}
}

func TestHints(t *testing.T) {
	code, _, stderr := runVerb(t, Verb{Setup: func(*pflag.FlagSet) RunFunc {
		return func(context.Context, *Env, []string) error {
			return WithHint(fmt.Errorf("outer: %w", WithHint(No("inner"), "first %d%%", 5)), "second")
		}
	}})
	want := "sb-test: error: outer: inner\nsb-test: hint: second\nsb-test: hint: first 5%\n"
	if code != 1 || stderr != want {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestCheckArgs(t *testing.T) {
	tests := []struct {
		pattern string
		args    int
		ok      bool
	}{
		{"", 0, true}, {"", 1, false},
		{"A", 0, false}, {"A", 1, true}, {"A", 2, false},
		{"[A]", 0, true}, {"[A]", 1, true}, {"[A]", 2, false},
		{"A [B]", 0, false}, {"A [B]", 2, true}, {"A [B]", 3, false},
		{"A...", 0, false}, {"A...", 1, true}, {"A...", 9, true},
		{"[A...]", 0, true}, {"[A...]", 9, true},
		{"A [B...]", 0, false}, {"A [B...]", 9, true},
	}
	for _, test := range tests {
		err := checkArgs(test.pattern, make([]string, test.args))
		if (err == nil) != test.ok || err != nil && ExitCode(err) != ExitUsage {
			t.Errorf("%q with %d arguments: %v", test.pattern, test.args, err)
		}
	}
}

// TestToolWithoutDefaultVerb is about the choice of a verb; the scripts test tools that have a default one.
func TestToolWithoutDefaultVerb(t *testing.T) {
	tool := Tool{Name: "sb-test", Summary: "tests", Verbs: []Verb{
		{Name: "one", Summary: "does one thing", Setup: doNothing},
		{Name: "other", Args: "[DOC]", Summary: "does another", Setup: doNothing},
	}}
	const verbs = "sb-test: hint: verbs: one, other; see sb-test --help\n"
	tests := []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"one"}, 0, "", ""},
		{[]string{"other", "x"}, 0, "", ""},
		{nil, 2, "", "sb-test: error: a verb is missing\n" + verbs},
		{[]string{""}, 2, "", "sb-test: error: unknown verb \"\"\n" + verbs},
		{[]string{"on"}, 2, "", "sb-test: error: unknown verb \"on\"\n" + verbs},
		{[]string{"-q", "one"}, 2, "", "sb-test: error: a verb comes before the flags\n" + verbs},
		{[]string{"--help"}, 0, `sb-test tests

usage:
  sb-test one [flags]
  sb-test other [flags] [DOC]

verbs:
  one    does one thing
  other  does another

Each verb has its own help: sb-test VERB --help.

` + exitHelp, ""},
	}
	for _, test := range tests {
		code, stdout, stderr := runTool(tool, "", test.args...)
		if code != test.code || stdout != test.stdout || stderr != test.stderr {
			t.Errorf("%q: exit code %d\nstdout %s\nstderr %s", test.args, code, stdout, stderr)
		}
	}
}

func doNothing(*pflag.FlagSet) RunFunc {
	return func(context.Context, *Env, []string) error { return nil }
}

// TestDocumentLimit makes a document that grows beyond all bounds when it is decompressed, and one that is too large.
func TestDocumentLimit(t *testing.T) {
	folder := t.TempDir()
	bomb, large := filepath.Join(folder, "bomb.zst"), filepath.Join(folder, "large")
	write := func(path string) func(context.Context, *Env, []string) error {
		return func(_ context.Context, env *Env, _ []string) error {
			return env.WriteDocument(path, append([]byte("{"), make([]byte, 99_999)...))
		}
	}
	read := func(path string) func(context.Context, *Env, []string) error {
		return func(_ context.Context, env *Env, _ []string) error {
			_, _, err := env.readDocument(path, 99_999)
			return err
		}
	}
	steps := []struct {
		do     RunFunc
		code   int
		stderr string
	}{
		{write(bomb), 0, ""},
		{write(large), 0, ""},
		{read(bomb), 3, "bomb.zst: more than 99.999 KB (99999 bytes) once decompressed"},
		{read(large), 3, "large: 100 KB (100000 bytes), more than 99.999 KB (99999 bytes)"},
	}
	for i, step := range steps {
		code, _, stderr := runVerb(t, Verb{Setup: func(*pflag.FlagSet) RunFunc { return step.do }})
		if code != step.code || !strings.Contains(stderr, step.stderr) {
			t.Errorf("step %d: exit code %d, stderr %s", i, code, stderr)
		}
	}
	if info, err := os.Stat(bomb); err != nil || info.Size() > 1000 {
		t.Errorf("the compressed document has %v bytes, %v", info.Size(), err)
	}
}

// TestOutputAfterCommit: what is deferred after a success changes nothing.
func TestOutputAfterCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	code, _, stderr := runVerb(t, Verb{Setup: func(*pflag.FlagSet) RunFunc {
		return func(_ context.Context, env *Env, _ []string) error {
			out, err := env.Create(path)
			if err != nil {
				return err
			}
			defer out.Abort()
			io.WriteString(out, "whole")
			return out.Commit()
		}
	}})
	if b, err := os.ReadFile(path); code != 0 || string(b) != "whole" {
		t.Errorf("exit code %d, %q, %v, stderr %s", code, b, err, stderr)
	}
}

func TestThreads(t *testing.T) {
	var n Threads
	if n.Count() != runtime.GOMAXPROCS(0) || n.String() != "" {
		t.Errorf("the default is %d", n.Count())
	}
	if err := n.Set("3"); err != nil || n.Count() != 3 {
		t.Error(err, n.Count())
	}
	for _, bad := range []string{"", "0", "-1", "4097", "2.5", "all"} {
		if n.Set(bad) == nil {
			t.Errorf("%q is taken for %d", bad, n)
		}
	}
}

func TestDuration(t *testing.T) {
	var d Duration
	if err := d.Set("1h30m"); err != nil || d.String() != "1h30m0s" {
		t.Error(err, d)
	}
	for _, bad := range []string{"", "0", "0s", "-5m", "5", "5 m", "1d", "99999999h"} {
		if d.Set(bad) == nil {
			t.Errorf("%q is taken for %v", bad, d)
		}
	}
}

// TestNoCgo: a package that all tools use must not bring C into those that have none.
func TestNoCgo(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if names := bytes.TrimSpace(out); len(names) > 0 {
		t.Errorf("uses C: %s", names)
	}
}

func runVerb(t *testing.T, v Verb, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runTool(Tool{Name: "sb-test", Verbs: []Verb{v}}, "", args...)
}

func runTool(tool Tool, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = Run(tool, args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// TestEndlessInput: what cannot be a document is not read to its end, not even what decompresses to much.
func TestEndlessInput(t *testing.T) {
	read := func(in io.Reader) (int, string) {
		t.Helper()
		name := ""
		tool := Tool{Name: "sb-test", Verbs: []Verb{{Setup: func(*pflag.FlagSet) RunFunc {
			return func(_ context.Context, env *Env, _ []string) error {
				var err error
				var b []byte
				if name, b, err = env.ReadDocument(""); err != nil {
					return err
				}
				if len(b) > startBytes {
					t.Errorf("%d bytes were read", len(b))
				}
				return jsonio.Unmarshal(name, b, new(struct{}))
			}
		}}}}
		var stderr strings.Builder
		code := Run(tool, nil, in, io.Discard, &stderr)
		return code, stderr.String()
	}
	for _, text := range []string{"\x00", "[", "\n", "x", "\x00{}"} {
		if code, stderr := read(endless(text)); code != ExitDocument {
			t.Errorf("%q again and again: exit code %d, stderr %s", text, code, stderr)
		}
		var packed bytes.Buffer
		w, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		io.CopyN(w, endless(text), 8<<20)
		w.Close()
		if code, stderr := read(&packed); code != ExitDocument {
			t.Errorf("%q again and again, compressed: exit code %d, stderr %s", text, code, stderr)
		}
	}
}

// endless is a text again and again.
type endless string

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e[i%len(e)]
	}
	return len(p), nil
}

// TestOneLine: an error is one line of bounded length, whatever it quotes.
func TestOneLine(t *testing.T) {
	tests := []struct{ text, want string }{
		{"plan.json:1:2: /ops/ü: bad", "plan.json:1:2: /ops/ü: bad"},
		{"a\nb", "a; b"},
		{"a\na\nb", "a; b"},
		{"/a\x1b[2J\r\tb\u0085\x7f", `/a\x1b[2J\r\tb\u0085\x7f`},
		{"a\xffb", `a\ufffdb`},
	}
	for _, test := range tests {
		if got := oneLine(test.text); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
	long := oneLine("plan.json: " + strings.Repeat("/a", 1<<20) + ": bad")
	if len(long) > maxErrorBytes+8 || !strings.HasPrefix(long, "plan.json: /a") || !strings.HasSuffix(long, "/a: bad") {
		t.Errorf("a long text becomes %d bytes, %.20q", len(long), long)
	}
}

// TestStreamAbort: a stream that does not come to its first line leaves what was there.
func TestStreamAbort(t *testing.T) {
	folder := t.TempDir()
	old, fresh := filepath.Join(folder, "old"), filepath.Join(folder, "fresh")
	if err := os.WriteFile(old, []byte("before\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		path, text string
		end        func(*Stream)
		want       string // content of the file; "" for none
	}{
		{old, "", (*Stream).Abort, "before\n"},
		{old, "half", (*Stream).Abort, "before\n"},
		{fresh, "half", (*Stream).Abort, ""},
		{fresh, "", func(s *Stream) { s.Close() }, "-"},
		{old, "x\ny\nhalf", func(s *Stream) { s.Flush(); s.Abort() }, "x\ny\n"},
		{old, "z\n", func(s *Stream) { s.Close() }, "z\n"},
		{old, "", func(s *Stream) { s.Close() }, "-"},
	}
	for i, step := range steps {
		code, _, stderr := runVerb(t, Verb{Setup: func(*pflag.FlagSet) RunFunc {
			return func(_ context.Context, env *Env, _ []string) error {
				s, err := env.CreateStream(step.path)
				if err != nil {
					return err
				}
				io.WriteString(s, step.text)
				step.end(s)
				return nil
			}
		}})
		if code != 0 {
			t.Fatalf("step %d: exit code %d, stderr %s", i, code, stderr)
		}
		b, err := os.ReadFile(step.path)
		switch {
		case step.want == "" && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("step %d: the file is there: %q, %v", i, b, err)
		case step.want == "-" && (err != nil || len(b) > 0):
			t.Errorf("step %d: %q, %v, want an empty file", i, b, err)
		case step.want != "" && step.want != "-" && string(b) != step.want:
			t.Errorf("step %d: %q, %v, want %q", i, b, err, step.want)
		}
	}
}

// TestAwait: a signal does not wait for what computes, and a panic of it is caught like any other.
func TestAwait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := make(chan int)
	if _, err := Await(ctx, func() (int, error) { return <-never, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n, err := Await(t.Context(), func() (int, error) { return 5, io.EOF }); n != 5 || err != io.EOF {
		t.Errorf("got %d, %v", n, err)
	}
	code, _, stderr := runVerb(t, Verb{Setup: func(*pflag.FlagSet) RunFunc {
		return func(context.Context, *Env, []string) error {
			_, err := Await(t.Context(), func() (int, error) { panic("broken invariant") })
			return err
		}
	}})
	if code != ExitInternal || !strings.Contains(stderr, "internal error: broken invariant") {
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
}
