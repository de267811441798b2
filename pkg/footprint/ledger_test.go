package footprint_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/synth"
)

// With RingBytes, the records of the next op always find a place in one piece
// beside those in use, over as many tokens as one likes.
func TestRingHasRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(rapid.Int64Range(1, 100), 1, 8).Draw(t, "ops")
		ring := footprint.RingBytes(ops)
		at := int64(0) // where the records in use lie
		for i := range 5 * len(ops) {
			inUse, next := ops[i%len(ops)], ops[(i+1)%len(ops)]
			switch behind := at + inUse; {
			case behind+next <= ring:
				at = behind
			case next <= at:
				at = 0
			default:
				t.Fatalf("ring of %d: %d in use at %d, no place for %d", ring, inUse, at, next)
			}
		}
	})
	if footprint.RingBytes(nil) != 0 {
		t.Error("a ring for nothing")
	}
}

func profile(t *testing.T, s synth.Shape) *doc.Profile {
	t.Helper()
	p, err := synth.Profile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The ledger has every part once and adds up.
func TestLedgerAddsUp(t *testing.T) {
	p := profile(t, synth.Shape{Layers: 4, Hidden: 64, Heads: 2, Vocab: 500, Context: 128})
	fixed, err := footprint.Run{Profile: p, KVCacheType: "f16", Context: 100, PrefillChunk: 8}.Fixed()
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(4 * 100 * 2 * 2 * 64); fixed.KV != want {
		t.Errorf("KV cache of %d bytes, want %d", fixed.KV, want)
	}
	h := footprint.Holdings{Weights: 1, Slots: 10, Ring: 100, Pool: 1000}
	if got, want := doc.SumLedger(footprint.Ledger(fixed, h)), fixed.Sum()+1111; got != want {
		t.Errorf("ledger of %d bytes, its parts have %d", got, want)
	}
	more, err := footprint.Run{Profile: p, KVCacheType: "f32", Context: 100, PrefillChunk: 16, ProcessBase: 1 << 20, Threads: 1}.Fixed()
	if err != nil {
		t.Fatal(err)
	}
	if more.KV != 2*fixed.KV || more.ProcessBase >= fixed.ProcessBase {
		t.Errorf("%+v and %+v: want twice the cache and the base that was given", fixed, more)
	}
}

func TestRunRefuses(t *testing.T) {
	p := profile(t, synth.Shape{Layers: 1, Hidden: 64, Heads: 2, Vocab: 500, Context: 128})
	for want, r := range map[string]footprint.Run{
		"the model takes 1 to 128": {Profile: p, KVCacheType: "f16", Context: 129, PrefillChunk: 8},
		"context of 0 tokens":      {Profile: p, KVCacheType: "f16", PrefillChunk: 8},
		"prefill chunk":            {Profile: p, KVCacheType: "f16", Context: 1},
		"KV cache type":            {Profile: p, KVCacheType: "q1", Context: 1, PrefillChunk: 8},
	} {
		if _, err := r.Fixed(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// A record has room for all of its tensors, apart from each other and
// aligned; a residual only for what is coded.
func TestLayout(t *testing.T) {
	p := profile(t, synth.Shape{Layers: 1, Hidden: 192, Heads: 2, HeadDim: 80, Vocab: 500, Experts: 2, TopK: 1, ExpertSize: 96})
	for _, e := range []doc.Encoding{
		{Bits: 3, Group: 32, Scale: "bf16", Fit: "lsq", FitVersion: 1},
		{Bits: 4, Group: 64, Scale: "f16", Fit: "minmax", FitVersion: 1},
		{Bits: 2, Group: 64, Scale: "bf16", Fit: "lsq", FitVersion: 1, Residual: true},
		{Bits: 16, Scale: "f16", Fit: "none"},
		{Bits: 32, Fit: "none"},
	} {
		for i := range p.Ops {
			op := &p.Ops[i]
			l, err := footprint.Layout(op, &e)
			if err != nil {
				t.Fatal(err)
			}
			end := int64(0)
			part := func(role string, offset, bytes int64) {
				if bytes > 0 && (offset < end || offset%footprint.TensorAlign != 0) {
					t.Errorf("%s %s: %d bytes at %d, after %d", op.ID, role, bytes, offset, end)
				}
				end = max(end, offset+bytes)
			}
			for _, x := range l.Tensors {
				n := int64(x.Rows) * int64(x.Cols)
				switch x.DType {
				case "codes":
					part(x.Role, x.Data, n*int64(x.Bits)/8)
					part(x.Role, x.Scales, n/int64(x.Group)*2)
					part(x.Role, x.Biases, n/int64(x.Group)*2)
				case "f32":
					part(x.Role, x.Data, 4*n)
				default:
					part(x.Role, x.Data, 2*n)
				}
				if e.Residual && x.DType != "codes" {
					t.Errorf("%s %s: a residual holds %s", op.ID, x.Role, x.DType)
				}
			}
			if !e.Residual && len(l.Tensors) != len(op.Tensors) {
				t.Errorf("%s: %d of %d tensors", op.ID, len(l.Tensors), len(op.Tensors))
			}
			if end > l.Bytes || l.Bytes%footprint.RecordAlign != 0 || l.Bytes-end >= footprint.RecordAlign {
				t.Errorf("%s: record of %d bytes, its tensors end at %d", op.ID, l.Bytes, end)
			}
		}
	}
}
