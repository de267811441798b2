// Package trace writes and reads the traces of runs: JSONL, one line per
// event, the types of lines in package doc.
package trace

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// Volume says how much a trace tells.
type Volume uint8

// Volumes of traces.
const (
	Off   Volume = iota
	Token        // run_start, token, tier, signal, fallback, memory, run_end
	Full         // op, read and slot lines too
)

// ParseVolume reads the name of a volume.
func ParseVolume(s string) (Volume, error) {
	for v := Off; v <= Full; v++ {
		if v.String() == s {
			return v, nil
		}
	}
	return Off, fmt.Errorf("trace volume %q: want off, token or full", s)
}

// String is the volume's name.
func (v Volume) String() string { return [...]string{"off", "token", "full"}[v] }

// flushBytes is how much a writer gathers before it writes.
const flushBytes = 64 << 10

// A Writer writes a trace. Writing a line between the first and the last
// allocates nothing. Its zero value and a nil Writer write nothing. The first
// error is kept and ends the trace: see Flush. Types of lines are set by the
// writer, their times and tokens by the caller.
type Writer struct {
	w      io.Writer
	volume Volume
	buf    []byte
	err    error
}

// NewWriter returns a writer of a trace.
func NewWriter(w io.Writer, volume Volume) *Writer {
	t := &Writer{w: w, volume: volume}
	if volume > Off {
		t.buf = make([]byte, 0, flushBytes+4<<10)
	}
	return t
}

// Wants reports whether lines of a volume are written, so that a caller need
// not gather what nobody reads.
func (t *Writer) Wants(v Volume) bool { return t != nil && t.volume >= v && v > Off }

// Start writes the first line.
func (t *Writer) Start(l *doc.RunStart) {
	if !t.Wants(Token) {
		return
	}
	l.Type, l.Format, l.Volume = doc.TraceRunStart, doc.FormatTrace, t.volume.String()
	t.whole(l)
}

// End writes the last line and flushes.
func (t *Writer) End(l *doc.RunEnd) error {
	if !t.Wants(Token) {
		return nil
	}
	l.Type = doc.TraceRunEnd
	t.whole(l)
	return t.Flush()
}

// whole writes a line of any type.
func (t *Writer) whole(l any) {
	line, err := jsonio.MarshalLine(l)
	if err != nil && t.err == nil {
		t.err = err
	}
	t.buf = append(t.buf, line...)
	t.flushAt(flushBytes)
}

// Token writes a line that ends a step.
func (t *Writer) Token(l *doc.TokenLine) {
	if !t.Wants(Token) {
		return
	}
	t.head(doc.TraceToken, &l.TraceHead)
	t.text("phase", l.Phase)
	t.integer("tokens", int64(l.Tokens))
	t.integer("id", int64(l.ID))
	t.integer("time_ns", l.TimeNs)
	t.integer("wait_ns", l.WaitNs)
	t.integer("read_bytes", l.ReadBytes)
	if l.LogitsHash != "" {
		t.text("logits_sha256", l.LogitsHash)
	}
	t.end()
}

// Op writes a line about one op of one step.
func (t *Writer) Op(l *doc.OpLine) {
	if !t.Wants(Full) {
		return
	}
	t.head(doc.TraceOp, &l.TraceHead)
	t.text("op", l.Op)
	t.integer("tier", int64(l.Tier))
	t.integer("time_ns", l.TimeNs)
	t.integer("wait_ns", l.WaitNs)
	t.end()
}

// Tier writes a line about a change of an op's tier.
func (t *Writer) Tier(l *doc.TierLine) {
	if !t.Wants(Token) {
		return
	}
	t.head(doc.TraceTier, &l.TraceHead)
	t.text("op", l.Op)
	t.integer("from", int64(l.From))
	t.integer("to", int64(l.To))
	t.text("reason", l.Reason)
	t.number("disagreement", l.Disagreement)
	t.integer("pool_used_bytes", l.PoolUsed)
	t.end()
}

// Read writes a line about a finished read.
func (t *Writer) Read(l *doc.ReadLine) {
	if !t.Wants(Full) {
		return
	}
	t.head(doc.TraceRead, &l.TraceHead)
	t.text("record", l.Record)
	t.text("class", l.Class)
	t.integer("bytes", l.Bytes)
	t.integer("queue_ns", l.QueueNs)
	t.integer("time_ns", l.TimeNs)
	if l.Late {
		t.truth("late", l.Late)
	}
	t.end()
}

// Slot writes a line about a change of a slot.
func (t *Writer) Slot(l *doc.SlotLine) {
	if !t.Wants(Full) {
		return
	}
	t.head(doc.TraceSlot, &l.TraceHead)
	t.integer("layer", int64(l.Layer))
	t.integer("slot", int64(l.Slot))
	t.text("record", l.Record)
	if l.Evicted != "" {
		t.text("evicted", l.Evicted)
	}
	t.end()
}

// Signal writes a line about a signal of the monitor.
func (t *Writer) Signal(l *doc.SignalLine) {
	if !t.Wants(Token) {
		return
	}
	t.head(doc.TraceSignal, &l.TraceHead)
	t.text("signal", l.Signal)
	t.number("measured", l.Measured)
	t.number("expected", l.Expected)
	t.truth("acted", l.Acted)
	t.end()
}

// Fallback writes a line about a missed deadline.
func (t *Writer) Fallback(l *doc.FallbackLine) {
	if !t.Wants(Token) {
		return
	}
	t.head(doc.TraceFallback, &l.TraceHead)
	t.text("op", l.Op)
	t.integer("tier", int64(l.Tier))
	t.text("strategy", l.Strategy)
	t.end()
}

// Memory writes a sample of the process's memory.
func (t *Writer) Memory(l *doc.MemoryLine) {
	if !t.Wants(Token) {
		return
	}
	t.head(doc.TraceMemory, &l.TraceHead)
	t.integer("resident_bytes", l.ResidentBytes)
	t.integer("anonymous_bytes", l.AnonymousBytes)
	t.integer("peak_bytes", l.PeakBytes)
	t.integer("go_heap_bytes", l.HeapBytes)
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{"swap_bytes", l.SwapBytes},
		{"pressure_ns", l.PressureNs},
		{"backend_active_bytes", l.BackendActiveBytes},
		{"backend_cache_bytes", l.BackendCacheBytes},
		{"backend_peak_bytes", l.BackendPeakBytes},
	} {
		if f.value != 0 {
			t.integer(f.name, f.value)
		}
	}
	t.end()
}

// Flush writes what is buffered and returns the first error so far.
func (t *Writer) Flush() error {
	if t == nil {
		return nil
	}
	t.flushAt(0)
	return t.err
}

func (t *Writer) flushAt(bytes int) {
	if len(t.buf) < bytes || t.err != nil {
		return
	}
	if len(t.buf) > 0 {
		_, t.err = t.w.Write(t.buf)
	}
	t.buf = t.buf[:0]
}

// The rest appends one line: head, members, end.

func (t *Writer) head(kind string, h *doc.TraceHead) {
	t.buf = append(t.buf, `{"type":"`...)
	t.buf = append(t.buf, kind...)
	t.buf = append(t.buf, `","t_ns":`...)
	t.buf = strconv.AppendInt(t.buf, h.TNs, 10)
	t.integer("token", h.Token)
}

func (t *Writer) name(name string) {
	t.buf = append(t.buf, ',', '"')
	t.buf = append(t.buf, name...)
	t.buf = append(t.buf, '"', ':')
}

func (t *Writer) text(name, value string) {
	t.name(name)
	if plain(value) {
		t.buf = append(t.buf, '"')
		t.buf = append(t.buf, value...)
		t.buf = append(t.buf, '"')
		return
	}
	buf, err := jsonio.AppendString(t.buf, []byte(value))
	if err != nil && t.err == nil {
		t.err = err
	}
	t.buf = buf
}

// plain reports whether a JSON string is s between quotes, as every id of an
// op or record is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func (t *Writer) integer(name string, value int64) {
	t.name(name)
	t.buf = strconv.AppendInt(t.buf, value, 10)
}

func (t *Writer) number(name string, value float64) {
	if (math.IsNaN(value) || math.IsInf(value, 0)) && t.err == nil {
		t.err = fmt.Errorf("trace: %s is %v, which JSON cannot say", name, value)
	}
	t.name(name)
	t.buf = strconv.AppendFloat(t.buf, value, 'g', -1, 64)
}

func (t *Writer) truth(name string, value bool) {
	t.name(name)
	t.buf = strconv.AppendBool(t.buf, value)
}

func (t *Writer) end() {
	t.buf = append(t.buf, '}', '\n')
	t.flushAt(flushBytes)
}
