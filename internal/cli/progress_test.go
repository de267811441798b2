package cli

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressLines: a line a minute where stderr is not a terminal, and none after the end.
func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env, stderr := progressEnv(t)
		p := env.Progress("measuring", "layers", 200)
		for range 100 {
			time.Sleep(1400 * time.Millisecond)
			p.Add(1)
		}
		p.Close()
		time.Sleep(time.Hour)
		want := "sb-test: progress: measuring: 42 of 200 layers, 21 %, 3m46s left\n" +
			"sb-test: progress: measuring: 85 of 200 layers, 42 %, 2m42s left\n"
		if got := stderr.String(); got != want {
			t.Errorf("got  %swant %s", got, want)
		}
	})
}

func TestProgressQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env, stderr := progressEnv(t)
		env.Quiet = true
		p := env.Progress("measuring", "layers", 200)
		p.Add(1)
		time.Sleep(time.Hour)
		p.Close()
		if stderr.String() != "" {
			t.Errorf("got %s", stderr.String())
		}
	})
}

// TestProgressEndsWithContext: an interrupted tool that forgets Close says no more.
func TestProgressEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env, stderr := progressEnv(t)
		ctx, cancel := context.WithCancel(env.ctx)
		env.ctx = ctx
		env.Progress("measuring", "layers", 200)
		time.Sleep(30 * time.Second)
		cancel()
		time.Sleep(time.Hour)
		if stderr.String() != "" {
			t.Errorf("got %s", stderr.String())
		}
	})
}

func TestProgressText(t *testing.T) {
	tests := []struct {
		unit        string
		done, total int64
		elapsed     time.Duration
		want        string
	}{
		{"layers", 0, 30, time.Minute, "x: 0 of 30 layers, 0 %"},
		{"layers", 12, 30, time.Minute, "x: 12 of 30 layers, 40 %, 1m30s left"},
		{"layers", 30, 30, time.Minute, "x: 30 of 30 layers, 100 %"},
		{"layers", 31, 30, time.Minute, "x: 31 of 30 layers, 100 %"},
		{"layers", 7, 0, time.Minute, "x: 7 layers"},
		{"layers", 1, 1000, time.Hour, "x: 1 of 1000 layers, 0 %, 999h0m0s left"},
		{"bytes", 3 << 29, 6 << 30, time.Second, "x: 1.5 GiB of 6 GiB, 25 %, 3s left"},
		{"bytes", 100, 0, time.Second, "x: 100 bytes"},
	}
	for _, test := range tests {
		p := &Progress{what: "x", unit: test.unit, total: test.total}
		p.Add(test.done)
		if got := p.text(test.elapsed); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestProgressIsMonotonic sets it from many goroutines, out of order.
func TestProgressIsMonotonic(t *testing.T) {
	p := &Progress{}
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for i := range 1000 {
				p.Set(int64(i * (g + 1)))
				p.Set(0)
			}
		})
	}
	wait.Wait()
	if got := p.done.Load(); got != 999*4 {
		t.Errorf("got %d", got)
	}
}

func BenchmarkProgressAdd(b *testing.B) {
	p := &Progress{}
	for b.Loop() {
		p.Add(1)
	}
}

// progressEnv is an Env whose stderr is text, without signals.
func progressEnv(t *testing.T) (*Env, *strings.Builder) {
	stderr := new(strings.Builder)
	return &Env{tool: "sb-test", ctx: t.Context(), term: newTerminal(stderr)}, stderr
}

// TestStatusLine: messages go above the status line, which comes back below them and never wraps.
func TestStatusLine(t *testing.T) {
	var out strings.Builder
	term := &terminal{w: &out, live: true}
	term.setStatus("working")
	term.setStatus("working")
	term.printLine("note")
	term.setStatus(strings.Repeat("ä", 100))
	term.setStatus("")
	want := eraseLine + "working" + eraseLine + "note\nworking" + eraseLine + strings.Repeat("ä", 79) + eraseLine
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
	var off strings.Builder
	term = &terminal{w: &off}
	term.setStatus("working")
	term.printLine("note")
	if off.String() != "note\n" {
		t.Errorf("got %q", off.String())
	}
}
