package trace

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"substrate/pkg/doc"
)

// lines is a sound trace of every type of line.
func lines() []any {
	head := func(t, token int64) doc.TraceHead { return doc.TraceHead{TNs: t, Token: token} }
	return []any{
		&doc.RunStart{TraceHead: head(0, -1), ModelID: "m", Mode: "scheduled", CapBytes: 1000,
			Ledger: []doc.LedgerLine{{Name: "weights", Bytes: 600}, {Name: "process_base", Bytes: 300}}},
		&doc.ReadLine{TraceHead: head(5, -1), Record: "block_0.attn.skeleton", Class: "load", Bytes: 600, QueueNs: 1, TimeNs: 4},
		&doc.MemoryLine{TraceHead: head(6, -1), ResidentBytes: 700, AnonymousBytes: 600, PeakBytes: 710, HeapBytes: 50, BackendActiveBytes: 650, BackendPeakBytes: 700},
		&doc.ReadLine{TraceHead: head(10, 0), Record: `odd "name" \ ü` + "\x01", Class: "demand", Bytes: 40, QueueNs: 2, TimeNs: 3, Late: true},
		&doc.OpLine{TraceHead: head(11, 0), Op: "block_0.attn", Tier: 1, TimeNs: 9, WaitNs: 3},
		&doc.TokenLine{TraceHead: head(12, 0), Phase: "prefill", Tokens: 3, ID: 7, TimeNs: 10, WaitNs: 3, ReadBytes: 40, LogitsHash: "0123456789abcdef"},
		&doc.SlotLine{TraceHead: head(13, 1), Layer: 2, Slot: 1, Record: "a", Evicted: "b"},
		&doc.SlotLine{TraceHead: head(13, 1), Layer: 2, Slot: 0, Record: "c"},
		&doc.ReadLine{TraceHead: head(14, 1), Record: "a", Class: "promotion", Bytes: 20},
		&doc.TierLine{TraceHead: head(15, 1), Op: "block_0.attn", From: 0, To: 1, Reason: "escalate", Disagreement: 0.30000000000000004, PoolUsed: 5},
		&doc.SignalLine{TraceHead: head(16, 1), Signal: "LATENCY_WARN", Measured: 1e-7, Expected: 2.5e21, Acted: true},
		&doc.OpLine{TraceHead: head(17, 1), Op: "block_0.attn", TimeNs: 4, WaitNs: 0},
		&doc.TokenLine{TraceHead: head(17, 1), Phase: "decode", Tokens: 1, ID: 8, TimeNs: 5, WaitNs: 1, ReadBytes: 20},
		&doc.RunEnd{TraceHead: head(20, 1), Reason: "max_tokens", Tokens: 2, DecodeNs: 5, PrefillNs: 10, PeakBytes: 900, CapBytes: 1000, ReadBytes: 660, DecodeReadBytes: 20, NeededBytes: 80, BitsServed: 4.5, Digest: "d"},
	}
}

// write writes lines with a writer and returns the text.
func write(t testing.TB, volume Volume, lines []any) []byte {
	var out bytes.Buffer
	w := NewWriter(&out, volume)
	for _, l := range lines {
		switch l := l.(type) {
		case *doc.RunStart:
			w.Start(l)
		case *doc.RunEnd:
			if err := w.End(l); err != nil {
				t.Fatal(err)
			}
		default:
			writeHot(w, l)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func writeHot(w *Writer, line any) {
	switch l := line.(type) {
	case *doc.TokenLine:
		w.Token(l)
	case *doc.OpLine:
		w.Op(l)
	case *doc.TierLine:
		w.Tier(l)
	case *doc.ReadLine:
		w.Read(l)
	case *doc.SlotLine:
		w.Slot(l)
	case *doc.SignalLine:
		w.Signal(l)
	case *doc.MemoryLine:
		w.Memory(l)
	}
}

// What the writer appends by hand is what the strict reader, which knows the
// documented members, gets back.
func TestRoundTrip(t *testing.T) {
	want := lines()
	r := NewReader("t", bytes.NewReader(write(t, Full, want)))
	for i := range want {
		got, head, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		kind := head.Type
		head.Type = ""
		if s, ok := want[i].(*doc.RunStart); ok {
			s.Type = ""
		}
		if e, ok := want[i].(*doc.RunEnd); ok {
			e.Type = ""
		}
		if diff := cmp.Diff(want[i], got); diff != "" || kind == "" {
			t.Errorf("line %d of type %q: %s", i+1, kind, diff)
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v", err)
	}
}

func TestVolumes(t *testing.T) {
	for volume, want := range map[Volume]int{Off: 0, Token: 7, Full: 14} {
		if got := bytes.Count(write(t, volume, lines()), []byte("\n")); got != want {
			t.Errorf("%v: %d lines, want %d", volume, got, want)
		}
	}
	for _, name := range []string{"off", "token", "full"} {
		if v, err := ParseVolume(name); err != nil || v.String() != name {
			t.Errorf("%s: got %v, %v", name, v, err)
		}
	}
	if _, err := ParseVolume("loud"); err == nil {
		t.Error("volume loud is no error")
	}
	var none *Writer
	none.Read(&doc.ReadLine{})
	if err := errors.Join(none.End(&doc.RunEnd{}), none.Flush()); err != nil {
		t.Error(err)
	}
}

func TestNoAllocation(t *testing.T) {
	w := NewWriter(io.Discard, Full)
	hot := lines()
	hot = append(hot[1:3], hot[4:len(hot)-1]...) // without the odd name
	if n := testing.AllocsPerRun(10000, func() {
		for _, l := range hot {
			writeHot(w, l)
		}
	}); n != 0 {
		t.Errorf("%v allocations in %d lines", n, len(hot))
	}
}

type brokenWriter struct{ calls int }

func (b *brokenWriter) Write([]byte) (int, error) {
	b.calls++
	return 0, io.ErrShortWrite
}

func TestWriterErrors(t *testing.T) {
	b := new(brokenWriter)
	w := NewWriter(b, Full)
	w.Read(&doc.ReadLine{})
	if err := w.Flush(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
	w.Read(&doc.ReadLine{})
	if err := w.End(&doc.RunEnd{}); !errors.Is(err, io.ErrShortWrite) || b.calls != 1 {
		t.Errorf("got %v after %d writes", err, b.calls)
	}
	w = NewWriter(io.Discard, Full)
	w.Tier(&doc.TierLine{Disagreement: math.NaN()})
	if err := w.Flush(); err == nil {
		t.Error("NaN is no error")
	}
}

func TestValidate(t *testing.T) {
	if err := Validate("t", bytes.NewReader(write(t, Full, lines()))); err != nil {
		t.Errorf("a sound trace: %v", err)
	}
	if err := Validate("t", bytes.NewReader(write(t, Token, lines()))); err != nil {
		t.Errorf("a sound trace of tokens: %v", err)
	}
	end := func(l []any) *doc.RunEnd { return l[len(l)-1].(*doc.RunEnd) }
	for name, tt := range map[string]struct {
		edit func(l []any) []any
		want string
	}{
		"empty":              {func(l []any) []any { return nil }, "no run_start"},
		"no start":           {func(l []any) []any { return l[1:] }, "t:1: /type: read: run_start is the first line"},
		"two starts":         {func(l []any) []any { return append(l[:2:2], l[0]) }, "t:3: /type: run_start: run_start is the first"},
		"no end":             {func(l []any) []any { return l[:5] }, "no run_end"},
		"after the end":      {func(l []any) []any { return append(l, l[2]) }, "t:15: /type: memory after run_end"},
		"time goes back":     {func(l []any) []any { l[3].(*doc.ReadLine).TNs = 4; return l }, "t:4: /t_ns: 4 after 6"},
		"tokens go back":     {func(l []any) []any { l[3].(*doc.ReadLine).Token = -2; return l }, "t:4: /token"},
		"ledger above cap":   {func(l []any) []any { l[0].(*doc.RunStart).CapBytes = 899; return l }, "t:1: /ledger: adds up to 900 bytes"},
		"missing read":       {func(l []any) []any { return append(l[:8:8], l[9:]...) }, "/read_bytes: 660, but the lines add up to 640"},
		"reads of decode":    {func(l []any) []any { end(l).DecodeReadBytes++; return l }, "/decode_read_bytes: 21"},
		"tokens":             {func(l []any) []any { end(l).Tokens = 3; return l }, "/tokens: 3, but the lines add up to 2"},
		"decode time":        {func(l []any) []any { end(l).DecodeNs = 6; return l }, "/decode_ns"},
		"prefill time":       {func(l []any) []any { end(l).PrefillNs = 6; return l }, "/prefill_ns"},
		"another cap":        {func(l []any) []any { end(l).CapBytes = 6; return l }, "/cap_bytes"},
		"peak below samples": {func(l []any) []any { end(l).PeakBytes = 709; return l }, "/peak_bytes: 709, but a sample was of 710"},
		"breach without 5":   {func(l []any) []any { end(l).PeakBytes = 1001; return l }, "/exit: 0 with a peak of 1001"},
		"5 without breach":   {func(l []any) []any { end(l).Exit = 5; return l }, "/exit: 5 with a peak of 900"},
		"waits too long":     {func(l []any) []any { l[4].(*doc.OpLine).WaitNs = 10; return l }, "t:5: /wait_ns"},
		"odd phase":          {func(l []any) []any { l[5].(*doc.TokenLine).Phase = "x"; return l }, "t:6: /phase"},
		"decode out of turn": {func(l []any) []any { l[12].(*doc.TokenLine).Token = 2; l[13].(*doc.RunEnd).Token = 2; return l }, "t:13: /token: decode step after 1 tokens is of token 2"},
		"negative bytes":     {func(l []any) []any { l[8].(*doc.ReadLine).Bytes = -1; return l }, "t:9: /bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Validate("t", bytes.NewReader(write(t, Full, tt.edit(lines()))))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	text := string(write(t, Full, lines()))
	for name, tt := range map[string]struct{ from, to, want string }{
		"other version":     {`sb.trace/1`, `sb.trace/2`, "t:1: /format"},
		"volume":            {`"volume":"full"`, `"volume":"token"`, "t:2: /type: read in a trace of volume token"},
		"unknown member":    {`"late":true`, `"tardy":true`, `t:4: unknown member "tardy"`},
		"unknown type":      {`"type":"slot"`, `"type":"slit"`, `t:7: /type: "slit" is no type`},
		"cut off":           {"\"digest\":\"d\"}\n", "\"digest\":\"d\"}", "cut off"},
		"not JSON":          {`{"type":"op"`, `{"type":"op`, "t:5: "},
		"integer too large": {`"class":"load","bytes":600`, `"class":"load","bytes":9007199254740993`, "t:2: /bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Validate("t", strings.NewReader(strings.Replace(text, tt.from, tt.to, 1)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestSummarize(t *testing.T) {
	text := write(t, Full, lines())
	s, err := Summarize("t", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	type numbers struct {
		Complete                     bool
		Tokens, LoadNs, WaitNs, P50  int64
		BytesPerToken, TokensPerSec  float64
		Reads, Ops, Tiers, Signals   int
		SlotChanges, PeakBytes, Late int64
	}
	got := numbers{s.Complete, s.Tokens, s.LoadNs, s.WaitNs, s.TokenP50Ns, s.BytesPerToken, s.TokensPerSec, len(s.Reads), len(s.Ops), len(s.Tiers), len(s.Signals), s.SlotChanges, s.PeakBytes, s.Reads[0].Late}
	want := numbers{true, 2, 2, 1, 5, 20, 2e8, 3, 1, 1, 1, 2, 900, 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A trace that was cut off after a whole line still has a summary.
	cut := text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]
	s, err = Summarize("t", bytes.NewReader(cut))
	if err != nil || s.Complete || s.BytesPerToken != 20 || s.PeakBytes != 710 {
		t.Errorf("cut off: %+v, %v", s, err)
	}
	for _, text := range []string{"", "{}\n", string(text[bytes.IndexByte(text, '\n')+1:])} {
		if _, err := Summarize("t", strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	var out strings.Builder
	if err := s.Print(&out); err != nil || !strings.Contains(out.String(), "the trace is cut off") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// FuzzRead: whatever the text, there is an answer; a valid trace has a
// summary.
func FuzzRead(f *testing.F) {
	f.Add(write(f, Full, lines()))
	f.Add(write(f, Token, lines()))
	f.Add([]byte("{\"type\":\"run_start\",\"format\":\"sb.trace/1\",\"volume\":\"full\"}\n{\"type\":\"token\",\"phase\":\"decode\",\"token\":1}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		valid := Validate("t", bytes.NewReader(text))
		s, err := Summarize("t", bytes.NewReader(text))
		if valid == nil && (err != nil || !s.Complete) {
			t.Errorf("valid, but no summary: %v", err)
		}
		if err == nil {
			if err := s.Print(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}

func BenchmarkWriter(b *testing.B) {
	w := NewWriter(io.Discard, Full)
	l := doc.OpLine{Op: "block_15.expert_17", TimeNs: 123456, WaitNs: 789}
	for i := 0; b.Loop(); i++ {
		l.TNs = int64(i)
		w.Op(&l)
	}
}
