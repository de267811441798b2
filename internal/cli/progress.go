package cli

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	liveInterval  = 200 * time.Millisecond // updates of the line on a terminal
	quietInterval = time.Minute            // lines elsewhere
)

// Progress tells on stderr how far long work is: on a terminal in one line that is updated in place, elsewhere with a
// line a minute, never with -q. All methods may be called from any goroutine and cost about an atomic addition.
type Progress struct {
	env   *Env
	what  string
	unit  string
	total int64
	done  atomic.Int64
	begin time.Time

	stop chan struct{}
	once sync.Once
	wait sync.WaitGroup
}

// Progress begins to tell about work, "measuring", of total units, "layers"; the unit "bytes" is shown with prefixes. A
// total of 0 is unknown. Defer Close.
func (e *Env) Progress(what, unit string, total int64) *Progress {
	p := &Progress{env: e, what: what, unit: unit, total: total, begin: time.Now(), stop: make(chan struct{})}
	if !e.Quiet {
		p.wait.Go(p.tell)
	}
	return p
}

// Add counts n more units as done.
func (p *Progress) Add(n int64) { p.done.Add(n) }

// Set says that n units are done in all. What is shown never goes back: a smaller n is ignored.
func (p *Progress) Set(n int64) {
	for {
		old := p.done.Load()
		if n <= old || p.done.CompareAndSwap(old, n) {
			return
		}
	}
}

// Close ends the telling and erases the line.
func (p *Progress) Close() {
	p.once.Do(func() { close(p.stop) })
	p.wait.Wait()
}

func (p *Progress) tell() {
	live := p.env.term.live
	interval := quietInterval
	if live {
		interval = liveInterval
		defer p.env.term.setStatus("")
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.env.ctx.Done():
			return
		case <-ticks.C:
			text := p.text(time.Since(p.begin))
			if live {
				p.env.term.setStatus(text)
			} else {
				p.env.message("progress", text)
			}
		}
	}
}

// text is the state after some time: "measuring: 12 of 30 layers, 40 %, 1m30s left".
func (p *Progress) text(elapsed time.Duration) string {
	done := p.done.Load()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", p.what, p.amount(done))
	if p.total > 0 {
		done = min(done, p.total)
		fmt.Fprintf(&b, " of %s", p.amount(p.total))
	}
	if p.unit != "bytes" {
		b.WriteString(" " + p.unit)
	}
	if p.total > 0 {
		fmt.Fprintf(&b, ", %d %%", int(100*float64(done)/float64(p.total)))
		if done > 0 && done < p.total {
			left := float64(elapsed) * float64(p.total-done) / float64(done)
			fmt.Fprintf(&b, ", %s left", roundTime(time.Duration(left)))
		}
	}
	return b.String()
}

func (p *Progress) amount(n int64) string {
	if p.unit == "bytes" {
		return Size(n).short()
	}
	return fmt.Sprint(n)
}

// roundTime drops what nobody reads: tenths of a second, and seconds beyond the hour.
func roundTime(d time.Duration) time.Duration {
	if d > time.Hour {
		return d.Round(time.Minute)
	}
	return max(d.Round(time.Second), time.Second)
}
