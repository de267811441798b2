package footprint

import (
	"cmp"
	"fmt"
	"slices"

	"substrate/pkg/arch"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// Constants of the ledger that no profile tells, measured on sb-run.
const (
	// DefaultProcessBase is what sb-run takes without a model: 11 MiB of its
	// code, the Go runtime, stacks, a heap with its garbage. It is used where
	// no machine document says better (process_base_bytes).
	DefaultProcessBase = 60 << 18 // 15 MiB

	// OpBytes is what sb-run knows of an op and its records, with kernel
	// handles and what reading the documents leaves on the heap.
	OpBytes = 4 << 10

	// tokenBytes is a token of a byte-level BPE tokenizer in memory: its text,
	// its place in the lookup table and one merge rule.
	tokenBytes = 46

	// DefaultThreads are assumed where nobody says how many will compute.
	DefaultThreads = 4
)

// Run is the part of a run's memory that does not depend on which records it
// holds.
type Run struct {
	Profile      *doc.Profile
	KVCacheType  string // one of the profile's kv_caches
	Context      int    // tokens
	PrefillChunk int    // rows of the largest step
	Threads      int    // that compute; 0: DefaultThreads
	ProcessBase  int64  // bytes; 0: DefaultProcessBase
}

// Fixed is the memory of a Run, in bytes.
type Fixed struct {
	KV, Scratch, Tokenizer, ProcessBase int64
	Staging                             int64 // for records that are stored compressed; 0 without
}

// Sum is the total.
func (f Fixed) Sum() int64 { return f.KV + f.Scratch + f.Staging + f.Tokenizer + f.ProcessBase }

// Fixed computes the memory of the run beside its records.
func (r Run) Fixed() (Fixed, error) {
	a := &r.Profile.Architecture
	if r.Context < 1 || r.Context > a.ContextTokens {
		return Fixed{}, fmt.Errorf("context of %d tokens: the model takes 1 to %d", r.Context, a.ContextTokens)
	}
	if r.PrefillChunk < 1 {
		return Fixed{}, fmt.Errorf("prefill chunk of %d tokens: want at least 1", r.PrefillChunk)
	}
	kv, err := KVBytes(r.Profile, r.KVCacheType, r.Context)
	if err != nil {
		return Fixed{}, err
	}
	return Fixed{
		KV:          kv,
		Scratch:     ScratchBytes(r.Profile, r.PrefillChunk, cmp.Or(r.Threads, DefaultThreads)),
		Tokenizer:   TokenizerBytes(int64(a.VocabSize) * tokenBytes),
		ProcessBase: cmp.Or(r.ProcessBase, DefaultProcessBase) + OpBytes*int64(len(r.Profile.Ops)),
	}, nil
}

// TokenizerBytes is what a tokenizer whose tables take some bytes costs the
// process: loading it leaves holes in the Go heap, up to three quarters of its
// size.
func TokenizerBytes(tables int64) int64 { return tables + tables/4*3 }

// KVBytes is the KV cache of all layers.
func KVBytes(p *doc.Profile, cacheType string, context int) (int64, error) {
	var types []string
	for _, kv := range p.KVCaches {
		if kv.Type == cacheType {
			return kv.BytesPerTokenPerLayer * int64(p.Architecture.Layers) * int64(context), nil
		}
		types = append(types, kv.Type)
	}
	return 0, fmt.Errorf("KV cache type %q: the model has %q", cacheType, types)
}

// ScratchBytes is what a forward pass in steps of up to chunk rows, of which
// one goes through the head, takes beside weights and KV cache: registers,
// the backend's scratch, the logits.
func ScratchBytes(p *doc.Profile, chunk, threads int) int64 {
	a := &p.Architecture
	widest := 0
	for i := range p.Ops {
		for j := range p.Ops[i].Tensors {
			widest = max(widest, p.Ops[i].Tensors[j].Cols)
		}
	}
	key, _ := a.CacheDim()
	return arch.RegisterBytes(a, arch.Options{Chunk: chunk, LogitRows: 1}) +
		backend.ScratchBytes(backend.ScratchSpec{
			Rows: chunk * max(1, a.ExpertsPerToken), Cols: widest, HeadDim: key, Threads: threads,
		}) + 4*int64(a.VocabSize)
}

// Holdings is the part of the ledger that a plan decides, in bytes.
type Holdings struct {
	Weights int64 // resident records
	Slots   int64
	Ring    int64
	Pool    int64
}

// Ledger lists every purpose of memory, the ones of zero bytes too.
func Ledger(f Fixed, h Holdings) []doc.LedgerLine {
	return []doc.LedgerLine{
		{Name: doc.LedgerWeights, Bytes: h.Weights},
		{Name: doc.LedgerSlots, Bytes: h.Slots},
		{Name: doc.LedgerRing, Bytes: h.Ring},
		{Name: doc.LedgerPool, Bytes: h.Pool},
		{Name: doc.LedgerKV, Bytes: f.KV},
		{Name: doc.LedgerScratch, Bytes: f.Scratch},
		{Name: doc.LedgerStaging, Bytes: f.Staging},
		{Name: doc.LedgerTokenizer, Bytes: f.Tokenizer},
		{Name: doc.LedgerProcessBase, Bytes: f.ProcessBase},
	}
}

// RingBytes is the size of the ring for ops that stream these many bytes
// each, in op order, cyclically: room for the records of two neighbouring
// ops, the ones in use and the ones being read, plus what may be lost at the
// ring's end, because an op's records lie in one piece.
//
// Then the next op always fits: with an op of a bytes in use at p, the next
// one of b bytes goes behind it, or, where p+a+b exceeds the ring, before it,
// because then p > ring-a-b >= largest >= b.
func RingBytes(streamed []int64) int64 {
	if len(streamed) == 0 {
		return 0
	}
	var pair int64
	for i, n := range streamed {
		next := streamed[(i+1)%len(streamed)]
		pair = max(pair, n+next)
	}
	return pair + slices.Max(streamed)
}
