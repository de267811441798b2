//go:build captest && linux

package captest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// outcome is what a process did, as the kernel saw it.
type outcome struct {
	code           int // exit code, -1 if a signal ended it
	stdout, stderr string
	peak           int64 // VmHWM at the end
	anonymous      int64 // the largest sample of RssAnon
	firstRead      int64 // rchar when the first byte of output was about to be written
	lastRead       int64 // rchar at the end
	killed         bool
}

// smallest is the budget that a refusal says would work, 0 if it says none.
func (o *outcome) smallest() int64 {
	m := regexp.MustCompile(`--max-ram (\d+)`).FindStringSubmatch(o.stderr)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// runIn runs a command in a cgroup and watches it.
func runIn(t *testing.T, g *cgroup, argv ...string) *outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	argv = g.enter(argv)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	read, write, filler := fullPipe(t)
	defer read.Close()
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	o := &outcome{}
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		// The process stays a zombie, whose numbers can still be read.
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		close(ended)
	}()
	// The first write of the process waits for us. It has written when it does
	// not read any more.
	o.firstRead = settledReads(pid, ended)
	output := make(chan string)
	go func() {
		text, err := io.ReadAll(read)
		if err != nil {
			t.Error(err)
		}
		output <- strings.TrimPrefix(string(text), filler)
	}()
	for running := true; running; {
		o.anonymous = max(o.anonymous, statusLine(pid, "RssAnon:"))
		select {
		case <-ended:
			running = false
		case <-time.After(2 * time.Millisecond):
		}
	}
	o.stdout = <-output
	o.lastRead = readChars(pid)
	err := cmd.Wait()
	o.stderr = stderr.String()
	state := cmd.ProcessState
	o.code = state.ExitCode()
	o.killed = state.Sys().(syscall.WaitStatus).Signaled()
	o.peak = state.SysUsage().(*syscall.Rusage).Maxrss << 10
	if err != nil && o.code < 0 && !o.killed {
		t.Fatal(err)
	}
	return o
}

// fullPipe makes a pipe that has no room: who writes waits until what fills it
// is read.
func fullPipe(t *testing.T) (read, write *os.File, filler string) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	size, err := unix.FcntlInt(write.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	filler = strings.Repeat("x", size)
	if _, err := write.WriteString(filler); err != nil {
		t.Fatal(err)
	}
	return read, write, filler
}

// settledReads is what a process has read once it reads nothing for a while.
func settledReads(pid int, ended <-chan struct{}) int64 {
	last, since := readChars(pid), time.Now()
	for time.Since(since) < 300*time.Millisecond {
		select {
		case <-ended:
			return readChars(pid)
		case <-time.After(10 * time.Millisecond):
		}
		if now := readChars(pid); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

// statusLine is a number of kB of /proc/PID/status in bytes, 0 if there is
// none any more.
func statusLine(pid int, name string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}

// readChars is what a process has read by system calls, in bytes.
func readChars(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return -1
	}
	var n int64
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
		return -1
	}
	return n
}
