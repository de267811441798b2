package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"substrate/pkg/doc"
)

// FormatSummary is the format of a Summary as JSON.
const FormatSummary = "sb.trace_summary/1"

// Summary is what a run did, in numbers.
type Summary struct {
	Format       string           `json:"format"`
	Synthetic    bool             `json:"synthetic,omitempty"`
	Complete     bool             `json:"complete"` // the trace ends with run_end
	ModelID      string           `json:"model_id"`
	Plan         string           `json:"plan"`
	Mode         string           `json:"mode"`
	Backend      string           `json:"backend"`
	CPUPath      string           `json:"cpu_path"`
	Threads      int              `json:"threads"`
	DirectReads  bool             `json:"direct_reads"`
	Ledger       []doc.LedgerLine `json:"ledger"`
	CapBytes     int64            `json:"cap_bytes"`
	PeakBytes    int64            `json:"peak_bytes"`
	Exit         int              `json:"exit"`
	Reason       string           `json:"reason"`
	PromptTokens int              `json:"prompt_tokens"` // computed; of all turns of a chat
	Tokens       int64            `json:"tokens"`
	LoadNs       int64            `json:"load_ns"` // until the first step began
	PrefillNs    int64            `json:"prefill_ns"`
	DecodeNs     int64            `json:"decode_ns"`
	TokensPerSec float64          `json:"tokens_per_second"`           // decoded, after the first
	Predicted    float64          `json:"predicted_tokens_per_second"` // the plan's
	TokenP50Ns   int64            `json:"token_p50_ns"`
	TokenP99Ns   int64            `json:"token_p99_ns"`
	WaitNs       int64            `json:"wait_ns"` // of decode, for reads
	// BytesPerToken is what decode read per token after the first, of the
	// NeededBytes that its kernels read.
	BytesPerToken float64      `json:"read_bytes_per_token"`
	NeededBytes   int64        `json:"needed_bytes_per_token"`
	BitsServed    float64      `json:"bits_served"`
	Reads         []ReadTotal  `json:"reads"` // by class; empty unless the trace is full
	Ops           []OpTotal    `json:"ops"`   // of decode, the slowest first
	Tiers         []TierTotal  `json:"tier_changes"`
	Signals       []NamedCount `json:"signals"`
	Fallbacks     []NamedCount `json:"fallbacks"`   // by strategy
	SwapBytes     int64        `json:"swap_bytes"`  // the most of a sample
	PressureNs    int64        `json:"pressure_ns"` // waited for memory, by the last sample
	SlotChanges   int64        `json:"slot_changes"`
	Digest        string       `json:"digest"`
}

// ReadTotal adds up the reads of one class.
type ReadTotal struct {
	Class   string `json:"class"`
	Reads   int64  `json:"reads"`
	Bytes   int64  `json:"bytes"`
	Late    int64  `json:"late"` // that somebody waited for
	QueueNs int64  `json:"queue_ns"`
	TimeNs  int64  `json:"time_ns"`
}

// OpTotal adds up one op's steps of decode.
type OpTotal struct {
	Op     string `json:"op"`
	Steps  int64  `json:"steps"`
	TimeNs int64  `json:"time_ns"`
	WaitNs int64  `json:"wait_ns"`
}

// TierTotal adds up one op's changes of tier.
type TierTotal struct {
	Op          string `json:"op"`
	Escalations int64  `json:"escalations"`
	Demotions   int64  `json:"demotions"`
}

// NamedCount is how often something happened.
type NamedCount struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// maxTokens bounds the token times that a summary keeps for its percentiles.
const maxTokens = 1 << 22

// Summarize reads a trace, which may be cut off after a whole line.
func Summarize(name string, r io.Reader) (*Summary, error) {
	s := &summarizer{
		Summary: Summary{Format: FormatSummary},
		reads:   map[string]*ReadTotal{}, ops: map[string]*OpTotal{}, tiers: map[string]*TierTotal{}, signals: map[string]*NamedCount{}, fallbacks: map[string]*NamedCount{},
	}
	lines := NewReader(name, r)
	for {
		line, head, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if _, first := line.(*doc.RunStart); first == s.started {
			return nil, lines.Errorf("/type", "%s: run_start is the first line and no other", head.Type)
		}
		if err := s.add(line); err != nil {
			return nil, lines.Errorf("", "%w", err)
		}
	}
	if !s.started {
		return nil, lines.Errorf("", "no run_start: the trace is empty")
	}
	s.finish()
	return &s.Summary, nil
}

// summarizer is a Summary in the making.
type summarizer struct {
	Summary
	started   bool
	stepped   bool
	reads     map[string]*ReadTotal
	ops       map[string]*OpTotal
	tiers     map[string]*TierTotal
	signals   map[string]*NamedCount
	fallbacks map[string]*NamedCount
	prefilled int     // tokens of prompts
	times     []int64 // of decode steps
	decode    int64   // bytes read in decode
}

// entry finds or makes a map's entry.
func entry[T any](m map[string]*T, key string, made T) *T {
	e := m[key]
	if e == nil {
		e = &made
		m[key] = e
	}
	return e
}

func (s *summarizer) add(line any) error {
	switch l := line.(type) {
	case *doc.RunStart:
		if err := doc.CheckFormat(l.Format, doc.FormatTrace); err != nil {
			return err
		}
		s.started = true
		s.Synthetic, s.ModelID, s.Plan, s.Mode, s.Backend, s.CPUPath = l.Synthetic, l.ModelID, l.Plan, l.Mode, l.Backend, l.CPUPath
		s.Threads, s.DirectReads, s.Ledger, s.CapBytes, s.PromptTokens = l.Threads, l.DirectReads, l.Ledger, l.CapBytes, l.PromptTokens
		s.Predicted = l.Predicted.TokensPerSec
	case *doc.TokenLine:
		s.token(l)
	case *doc.OpLine:
		if l.Token >= 1 {
			o := entry(s.ops, l.Op, OpTotal{Op: l.Op})
			o.Steps++
			o.TimeNs += l.TimeNs
			o.WaitNs += l.WaitNs
		}
	case *doc.ReadLine:
		c := entry(s.reads, l.Class, ReadTotal{Class: l.Class})
		c.Reads++
		c.Bytes += l.Bytes
		c.QueueNs += l.QueueNs
		c.TimeNs += l.TimeNs
		if l.Late {
			c.Late++
		}
	case *doc.TierLine:
		t := entry(s.tiers, l.Op, TierTotal{Op: l.Op})
		if l.To > l.From {
			t.Escalations++
		} else {
			t.Demotions++
		}
	case *doc.SignalLine:
		entry(s.signals, l.Signal, NamedCount{Name: l.Signal}).Count++
	case *doc.FallbackLine:
		entry(s.fallbacks, l.Strategy, NamedCount{Name: l.Strategy}).Count++
	case *doc.SlotLine:
		s.SlotChanges++
	case *doc.MemoryLine:
		s.PeakBytes = max(s.PeakBytes, l.PeakBytes)
		s.SwapBytes, s.PressureNs = max(s.SwapBytes, l.SwapBytes), l.PressureNs
	case *doc.RunEnd:
		s.Complete = true
		s.PeakBytes, s.Exit, s.Reason, s.BitsServed, s.Digest = l.PeakBytes, l.Exit, l.Reason, l.BitsServed, l.Digest
		s.NeededBytes, s.decode = l.NeededBytes, l.DecodeReadBytes
	}
	return nil
}

func (s *summarizer) token(l *doc.TokenLine) {
	if !s.stepped {
		s.LoadNs, s.stepped = l.TNs-l.TimeNs, true
	}
	if l.ID >= 0 {
		s.Tokens++
	}
	if l.Phase != "decode" {
		s.PrefillNs += l.TimeNs
		s.prefilled += l.Tokens
		s.PromptTokens = s.prefilled
		return
	}
	s.DecodeNs += l.TimeNs
	s.WaitNs += l.WaitNs
	if !s.Complete {
		s.decode += l.ReadBytes
	}
	if len(s.times) < maxTokens {
		s.times = append(s.times, l.TimeNs)
	}
}

func (s *summarizer) finish() {
	if n := len(s.times); n > 0 {
		slices.Sort(s.times)
		s.TokenP50Ns, s.TokenP99Ns = s.times[n/2], s.times[min(n-1, n*99/100)]
		s.BytesPerToken = float64(s.decode) / float64(n)
		if s.DecodeNs > 0 {
			s.TokensPerSec = float64(n) * 1e9 / float64(s.DecodeNs)
		}
	}
	s.Reads = sorted(s.reads, func(a, b *ReadTotal) int { return cmp.Compare(a.Class, b.Class) })
	s.Ops = sorted(s.ops, func(a, b *OpTotal) int {
		return cmp.Or(cmp.Compare(b.TimeNs, a.TimeNs), cmp.Compare(a.Op, b.Op))
	})
	s.Tiers = sorted(s.tiers, func(a, b *TierTotal) int {
		return cmp.Or(cmp.Compare(b.Escalations, a.Escalations), cmp.Compare(a.Op, b.Op))
	})
	byName := func(a, b *NamedCount) int { return cmp.Compare(a.Name, b.Name) }
	s.Signals, s.Fallbacks = sorted(s.signals, byName), sorted(s.fallbacks, byName)
}

// sorted lists a map's entries in order.
func sorted[T any](m map[string]*T, order func(a, b *T) int) []T {
	all := make([]*T, 0, len(m))
	for _, e := range m {
		all = append(all, e)
	}
	slices.SortFunc(all, order)
	list := make([]T, len(all))
	for i, e := range all {
		list[i] = *e
	}
	return list
}

// mostListed is how many ops and tier changes a summary shows as text.
const mostListed = 12

// Print writes the summary to read.
func (s *Summary) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	title := s.ModelID
	if s.Synthetic {
		title += " (synthetic)"
	}
	row("model", "%s, plan %s, mode %s, backend %s (%s), %d threads", title, s.Plan, s.Mode, s.Backend, s.CPUPath, s.Threads)
	if s.Complete {
		row("end", "%s, exit %d", s.Reason, s.Exit)
	} else {
		row("end", "none: the trace is cut off")
	}
	row("memory", "peak %s of a cap of %s (%.1f %%)", mib(s.PeakBytes), mib(s.CapBytes), percent(s.PeakBytes, s.CapBytes))
	for _, l := range s.Ledger {
		row("", "%s\t%s", mib(l.Bytes), l.Name)
	}
	row("load", "%s", seconds(s.LoadNs))
	row("prefill", "%d tokens in %s", s.PromptTokens, seconds(s.PrefillNs))
	row("decode", "%d tokens in %s: %.2f tok/s (planned %.2f), p50 %s, p99 %s", s.Tokens, seconds(s.DecodeNs), s.TokensPerSec, s.Predicted, seconds(s.TokenP50Ns), seconds(s.TokenP99Ns))
	row("waiting", "%s of decode (%.1f %%)", seconds(s.WaitNs), percent(s.WaitNs, s.DecodeNs))
	row("reads", "%s a token, %.1f %% of the %s that its kernels need", mib(int64(s.BytesPerToken)), percent(int64(s.BytesPerToken), s.NeededBytes), mib(s.NeededBytes))
	for _, c := range s.Reads {
		row("", "%s\t%d reads, %s, %d late", c.Class, c.Reads, mib(c.Bytes), c.Late)
	}
	row("bits served", "%.3f", s.BitsServed)
	row("slots", "%d changes", s.SlotChanges)
	for _, n := range s.Signals {
		row("signal", "%s\t%d", n.Name, n.Count)
	}
	for _, n := range s.Fallbacks {
		row("fallback", "%s\t%d", n.Name, n.Count)
	}
	if s.SwapBytes > 0 || s.PressureNs > 0 {
		row("pressure", "%s swapped out, %s waiting for memory", mib(s.SwapBytes), seconds(s.PressureNs))
	}
	for _, t := range s.Tiers[:min(len(s.Tiers), mostListed)] {
		row("tiers", "%s\t%d up, %d down", t.Op, t.Escalations, t.Demotions)
	}
	for _, o := range s.Ops[:min(len(s.Ops), mostListed)] {
		row("op", "%s\t%s a step, waiting %s", o.Op, seconds(o.TimeNs/o.Steps), seconds(o.WaitNs/o.Steps))
	}
	row("digest", "%s", s.Digest)
	return w.Flush()
}

func mib(n int64) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }

func seconds(ns int64) string {
	switch {
	case ns < 1e6:
		return fmt.Sprintf("%.1f us", float64(ns)/1e3)
	case ns < 1e9:
		return fmt.Sprintf("%.1f ms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.2f s", float64(ns)/1e9)
}

func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}
