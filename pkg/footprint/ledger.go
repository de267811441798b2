package footprint

import (
	"fmt"
	"slices"

	"substrate/pkg/arch"
	"substrate/pkg/doc"
)

// Constants of the ledger that no profile tells.
const (
	// DefaultProcessBase is what sb-run takes without a model: its code, the
	// Go runtime, stacks and heap. It is used where no machine document says
	// better (process_base_bytes), which sb-calibrate machine measures.
	DefaultProcessBase = 16 << 20

	// StagingBytes is for reads that do not go straight to their place:
	// compressed records are decoded as a stream through two buffers of this
	// half each.
	StagingBytes = 1 << 20

	// TokenizerBytesPerToken estimates a byte-level BPE tokenizer in memory:
	// per token its text, its place in the lookup table and one merge rule.
	// sb-run replaces the estimate by what it counts.
	TokenizerBytesPerToken = 128
)

// Run is the part of a run's memory that does not depend on which records it
// holds.
type Run struct {
	Profile      *doc.Profile
	KVCacheType  string // one of the profile's kv_caches
	Context      int    // tokens
	PrefillChunk int    // rows of the largest step
	ProcessBase  int64  // bytes; 0: DefaultProcessBase
}

// Fixed is the memory of a Run, in bytes.
type Fixed struct {
	KV, Scratch, Staging, Tokenizer, ProcessBase int64
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
	f := Fixed{
		KV:          kv,
		Scratch:     ScratchBytes(a, r.PrefillChunk),
		Staging:     StagingBytes,
		Tokenizer:   int64(a.VocabSize) * TokenizerBytesPerToken,
		ProcessBase: r.ProcessBase,
	}
	if f.ProcessBase == 0 {
		f.ProcessBase = DefaultProcessBase
	}
	return f, nil
}

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

// ScratchBytes is the registers of a forward pass in steps of up to chunk
// rows, of which one goes through the head.
func ScratchBytes(a *doc.Architecture, chunk int) int64 {
	return arch.RegisterBytes(a, arch.Options{Chunk: chunk, LogitRows: 1})
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
