package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// interruption is the cause of a context that a signal ended.
type interruption struct{ signal syscall.Signal }

func (e *interruption) Error() string {
	name := "SIGTERM"
	if e.signal == syscall.SIGINT {
		name = "SIGINT"
	}
	return fmt.Sprintf("interrupted by %s", name)
}

func (e *interruption) ExitCode() int { return 128 + int(e.signal) }

// watchSignals ends the context at the first SIGINT or SIGTERM. The second one ends the process at once, after it has
// removed the temporary files. SIGPIPE keeps Go's default: a closed stdout ends the process.
func (e *Env) watchSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case s := <-signals:
				cause := &interruption{s.(syscall.Signal)}
				if !first {
					e.discard()
					os.Exit(cause.ExitCode())
				}
				cancel(cause)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}
