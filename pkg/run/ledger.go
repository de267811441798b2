package run

import (
	"fmt"
	"os"
	"strings"

	"substrate/internal/mem"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// A RefusedError says that a run does not fit its cap or its environment. It
// comes before any work.
type RefusedError struct {
	CapBytes int64
	// Reason is what the cap does not fit: the ledger, or the environment.
	Reason string
	// Ledger lists what the smallest run of this kind needs.
	Ledger []doc.LedgerLine
	// Smallest is the smallest cap that works, in bytes; 0 if another cap is
	// no remedy.
	Smallest int64
}

func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString(e.Reason)
	for i, l := range e.Ledger {
		b.WriteString([]string{": ", " + "}[min(i, 1)])
		fmt.Fprintf(&b, "%s %d", l.Name, l.Bytes)
	}
	return b.String()
}

// Hint names the flag.
func (e *RefusedError) Hint() string {
	if e.Smallest == 0 {
		return ""
	}
	return fmt.Sprintf("the smallest budget that works is --max-ram %d", e.Smallest)
}

// fixedMemory is the part of the ledger that does not depend on where records
// live.
func (r *Run) fixedMemory(profile *doc.Profile) (footprint.Fixed, error) {
	o := &r.opt
	f, err := footprint.Run{
		Profile: profile, KVCacheType: o.KVType, Context: o.Context, PrefillChunk: r.chunk, Threads: o.Threads, ProcessBase: o.ProcessBase,
	}.Fixed()
	if err != nil {
		return f, err
	}
	if b, ok := r.backend.(backend.Based); ok {
		f.ProcessBase += b.BaseBytes()
	}
	f.ProcessBase += o.Sampling.SamplerBytes(profile.Architecture.VocabSize)
	if o.Many {
		f.ProcessBase += manyBytes
	}
	if o.Tokenizer > 0 {
		f.Tokenizer = footprint.TokenizerBytes(o.Tokenizer)
	}
	for i := range r.program.records {
		if r.program.records[i].zstd {
			f.Staging = frameBytes
		}
	}
	return f, nil
}

// manyBytes is what a process grows by while it answers many prompts: 1.9 MiB
// after 800 answers, and no more in 126,000 tokens of 1,260.
const manyBytes = 2 << 20

// growthBytes is what a process grows by at least, in pages of code and heap,
// between admission and its end, beside what the ledger lists. (More would let
// the noise of measuring move the smallest budget: processes vary by 1 MiB.)
const growthBytes = 768 << 10

// admit decides where records live under the cap, or refuses. Nothing of size
// has been allocated yet: resident is what the process takes so far.
func (r *Run) admit(resident int64) (*residency, error) {
	o := &r.opt
	// A process that is larger than the constants say, by another C library or
	// a backend's own, counts as it is.
	// Equal processes vary by less than a grain, and the constants have room
	// for that: it must not move the smallest budget.
	const grain = 1 << 20
	if over := resident + growthBytes - r.fixed.ProcessBase - r.fixed.Tokenizer; over > grain {
		r.fixed.ProcessBase += footprint.Align(over, grain)
	}
	rest := r.fixed.Sum() + r.poolBytes
	res, smallest := r.program.fit(r.mode, r.planned, o.CapBytes-rest)
	if res == nil {
		// The ledger of the smallest run shows why.
		least, _ := r.program.fit(r.mode, r.planned, smallest)
		return nil, &RefusedError{
			CapBytes: o.CapBytes,
			Reason:   fmt.Sprintf("the cap is %d bytes (%s), the smallest run takes %d", o.CapBytes, o.CapSource, smallest+rest),
			Ledger:   r.list(least),
			Smallest: footprint.Align(smallest+rest, footprint.RecordAlign),
		}
	}
	if o.asPlanned {
		res = r.planned
	}
	r.ledger = r.list(res)
	return res, allows(o.Environment, o, doc.SumLedger(r.ledger)-resident, footprint.Align(smallest+rest, footprint.RecordAlign))
}

func (r *Run) list(res *residency) []doc.LedgerLine {
	return footprint.Ledger(r.fixed, footprint.Holdings{Weights: res.weights, Slots: res.slots, Ring: res.ring, Pool: r.poolBytes})
}

// allows refuses if the environment would stop the run before its cap does:
// then the cap promises what nobody can keep. more is what the run will
// allocate.
func allows(e *mem.Environment, o *Options, more, smallest int64) error {
	if e == nil {
		return nil
	}
	// Kernels round limits down to pages.
	if limit := e.Cgroup.Limit; limit < o.CapBytes-o.CapBytes%int64(os.Getpagesize()) {
		refusal := &RefusedError{
			CapBytes: o.CapBytes,
			Reason:   fmt.Sprintf("the cap is %d bytes (%s), but cgroup %s limits this process to %d", o.CapBytes, o.CapSource, e.Cgroup.Group, limit),
		}
		if smallest <= limit {
			refusal.Smallest = smallest
		}
		return refusal
	}
	if room, by := e.Room(); room < more {
		return &RefusedError{
			CapBytes: o.CapBytes,
			Reason:   fmt.Sprintf("the run will allocate %d bytes, but %s has %d left", more, by, room),
			Smallest: smallest,
		}
	}
	return nil
}
