package trace

import (
	"errors"
	"io"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// Validate reads a whole trace and checks that its lines agree with each
// other: run_start first, run_end last, time and token never go back, the
// ledger fits the cap, and what run_end says is the sum of what the lines say.
func Validate(name string, r io.Reader) error {
	v := &validator{r: NewReader(name, r)}
	for {
		line, head, err := v.r.Next()
		if errors.Is(err, io.EOF) {
			return v.finish()
		}
		if err == nil {
			err = v.line(line, head)
		}
		if err != nil {
			return err
		}
	}
}

// validator adds up what the lines say.
type validator struct {
	r     *Reader
	start *doc.RunStart
	end   *doc.RunEnd
	last  doc.TraceHead

	sampled             int64
	prefillNs, decodeNs int64
	reads, decodeReads  int64
	peak                int64
}

func (v *validator) line(line any, head *doc.TraceHead) error {
	_, first := line.(*doc.RunStart)
	switch {
	case first != (v.start == nil):
		return v.r.Errorf("/type", "%s: run_start is the first line and no other", head.Type)
	case v.end != nil:
		return v.r.Errorf("/type", "%s after run_end", head.Type)
	case head.TNs < v.last.TNs || head.TNs < 0:
		return v.r.Errorf("/t_ns", "%d after %d: time goes back", head.TNs, v.last.TNs)
	case head.Token < -1 || !first && head.Token < v.last.Token:
		return v.r.Errorf("/token", "%d after %d: tokens go back", head.Token, v.last.Token)
	}
	v.last = *head
	switch l := line.(type) {
	case *doc.RunStart:
		v.start = l
		return v.runStart(l)
	case *doc.TokenLine:
		return v.token(l)
	case *doc.OpLine:
		return v.full(v.wait(l.TimeNs, l.WaitNs))
	case *doc.ReadLine:
		if l.Bytes < 0 {
			return v.r.Errorf("/bytes", "%d", l.Bytes)
		}
		v.reads += l.Bytes
		if l.Token >= 1 {
			v.decodeReads += l.Bytes
		}
		return v.full(nil)
	case *doc.SlotLine:
		return v.full(nil)
	case *doc.MemoryLine:
		v.peak = max(v.peak, l.PeakBytes, l.ResidentBytes)
	case *doc.RunEnd:
		v.end = l
		return v.runEnd(l)
	}
	return nil
}

// full refuses a line that a trace of this volume does not have.
func (v *validator) full(err error) error {
	if err == nil && v.start.Volume != Full.String() {
		return v.r.Errorf("/type", "%s in a trace of volume %s", v.last.Type, v.start.Volume)
	}
	return err
}

func (v *validator) wait(time, wait int64) error {
	if wait < 0 || time < wait {
		return v.r.Errorf("/wait_ns", "waited %d ns of %d", wait, time)
	}
	return nil
}

func (v *validator) runStart(l *doc.RunStart) error {
	if err := doc.CheckFormat(l.Format, doc.FormatTrace); err != nil {
		return v.r.Errorf("/format", "%w", err)
	}
	if _, err := ParseVolume(l.Volume); err != nil {
		return v.r.Errorf("/volume", "%w", err)
	}
	if sum := doc.SumLedger(l.Ledger); sum > l.CapBytes {
		return v.r.Errorf("/ledger", "adds up to %d bytes, above the cap of %d", sum, l.CapBytes)
	}
	return nil
}

func (v *validator) token(l *doc.TokenLine) error {
	if l.ID >= 0 {
		v.sampled++
	}
	switch l.Phase {
	case "prefill":
		v.prefillNs += l.TimeNs
		next := v.sampled
		if l.ID >= 0 {
			next--
		}
		if l.Token != next {
			return v.r.Errorf("/token", "prefill after %d tokens is of token %d", next, l.Token)
		}
	case "decode":
		v.decodeNs += l.TimeNs
		if l.ID < 0 || l.Token != v.sampled-1 || l.Token < 1 || l.Tokens != 1 {
			return v.r.Errorf("/token", "decode step after %d tokens is of token %d and of %d tokens", v.sampled-1, l.Token, l.Tokens)
		}
	default:
		return v.r.Errorf("/phase", "%q: want prefill or decode", l.Phase)
	}
	return v.wait(l.TimeNs, l.WaitNs)
}

func (v *validator) runEnd(l *doc.RunEnd) error {
	type sum struct {
		member    string
		told, sum int64
	}
	sums := []sum{
		{"tokens", l.Tokens, v.sampled},
		{"prefill_ns", l.PrefillNs, v.prefillNs},
		{"decode_ns", l.DecodeNs, v.decodeNs},
	}
	if v.start.Volume == Full.String() {
		sums = append(sums, sum{"read_bytes", l.ReadBytes, v.reads}, sum{"decode_read_bytes", l.DecodeReadBytes, v.decodeReads})
	}
	for _, s := range sums {
		if s.told != s.sum {
			return v.r.Errorf(jsonio.Pointer("/"+s.member), "%d, but the lines add up to %d", s.told, s.sum)
		}
	}
	switch {
	case l.CapBytes != v.start.CapBytes:
		return v.r.Errorf("/cap_bytes", "%d, but run_start says %d", l.CapBytes, v.start.CapBytes)
	case l.PeakBytes < v.peak:
		return v.r.Errorf("/peak_bytes", "%d, but a sample was of %d", l.PeakBytes, v.peak)
	case (l.PeakBytes > l.CapBytes) != (l.Exit == 5):
		return v.r.Errorf("/exit", "%d with a peak of %d under a cap of %d", l.Exit, l.PeakBytes, l.CapBytes)
	}
	return nil
}

func (v *validator) finish() error {
	switch {
	case v.start == nil:
		return v.r.Errorf("", "no run_start: the trace is empty")
	case v.end == nil:
		return v.r.Errorf("", "no run_end: the run did not end, or its trace is cut off")
	}
	return nil
}
