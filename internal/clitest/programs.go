package clitest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long interrupt waits for the line and then for the end of the program.
const patience = 30 * time.Second

// status is the exit code that a shell would show.
func status(p *os.ProcessState) int {
	if ws, ok := p.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.ExitCode()
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(99)
}

// finish waits for the program and is the end of this process too.
func finish(cmd *exec.Cmd, after ...func()) {
	err := cmd.Wait()
	for _, f := range after {
		f()
	}
	if cmd.ProcessState == nil {
		fail("%s: %v", cmd.Path, err)
	}
	os.Exit(status(cmd.ProcessState))
}

func ttyMain() {
	if len(os.Args) < 2 {
		fail("usage: tty program [arg...]")
	}
	control, terminal, err := openPTY()
	if err != nil {
		fail("tty: %v", err)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, os.Stdout, terminal
	if err := cmd.Start(); err != nil {
		fail("tty: %v", err)
	}
	terminal.Close()
	shown := make(chan struct{})
	go func() {
		io.Copy(os.Stderr, control) // ends with an error once nobody has the terminal open
		close(shown)
	}()
	go func() {
		io.Copy(control, os.Stdin)
		control.Write([]byte{4}) // end of input
	}()
	go func() { // so that interrupt can run tty
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	finish(cmd, func() { <-shown })
}

func interruptMain() {
	if len(os.Args) < 4 {
		fail("usage: interrupt signals pattern program [arg...]")
	}
	pattern, err := regexp.Compile(os.Args[2])
	if err != nil {
		fail("interrupt: %v", err)
	}
	var signals []syscall.Signal
	for name := range strings.SplitSeq(os.Args[1], ",") {
		s := unix.SignalNum("SIG" + name)
		if s == 0 {
			fail("interrupt: unknown signal %q", name)
		}
		signals = append(signals, s)
	}
	cmd := exec.Command(os.Args[3], os.Args[4:]...)
	seen := make(chan struct{})
	watch := &watcher{pattern: pattern, seen: seen}
	cmd.Stdout = io.MultiWriter(os.Stdout, watch)
	cmd.Stderr = io.MultiWriter(os.Stderr, watch)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		fail("interrupt: %v", err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		fail("interrupt: %v", err)
	}
	time.AfterFunc(patience, func() {
		cmd.Process.Kill()
		fail("interrupt: not done after %v", patience)
	})
	go func() {
		<-seen
		for _, s := range signals {
			cmd.Process.Signal(s)
			time.Sleep(100 * time.Millisecond) // so that they arrive one by one
		}
	}()
	finish(cmd)
}

// watcher closes seen at the first line that matches.
type watcher struct {
	pattern *regexp.Regexp
	seen    chan struct{}

	mu   sync.Mutex
	once sync.Once
	text []byte
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	for {
		line, rest, ok := bytes.Cut(w.text, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if w.pattern.Match(line) {
			w.once.Do(func() { close(w.seen) })
		}
		w.text = rest
	}
}
