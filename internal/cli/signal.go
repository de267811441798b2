package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// interruption is the cause of a context that a signal ended.
type interruption struct{ signal syscall.Signal }

func (e *interruption) Error() string { return "interrupted by " + unix.SignalName(e.signal) }

func (e *interruption) ExitCode() int { return 128 + int(e.signal) }

// watchSignals ends the context at the first SIGINT, SIGTERM or SIGHUP. The second one ends the process at once, after it
// has removed the temporary files. A signal that the process was started to ignore, as nohup does, stays ignored. SIGPIPE
// keeps Go's default: a closed stdout ends the process.
func (e *Env) watchSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
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
