package run

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"substrate/internal/crc32c"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/stream"
)

// patternFile is a store's file of which the bytes at an offset are known.
type patternFile struct{ delay func() time.Duration }

func (patternFile) Name() string { return "pattern" }
func (patternFile) Align() int   { return 4096 }

func (f patternFile) ReadAt(p []byte, offset int64) (int, error) {
	if f.delay != nil {
		time.Sleep(f.delay())
	}
	for i := range p {
		p[i] = byte((offset + int64(i)) / 4096)
	}
	return len(p), nil
}

// testRing is a ring of dense ops of the given sizes in blocks.
func testRing(sizes []int64, bytes int64, f stream.File) *ring {
	p := &program{arch: &doc.Architecture{}}
	s := &reads{files: []stream.File{f}, clock: stream.StartClock()}
	var at int64
	for i, blocks := range sizes {
		n := blocks * footprint.RecordAlign
		raw := make([]byte, n)
		patternFile{}.ReadAt(raw, at)
		p.records = append(p.records, record{id: "r", op: int32(i), bytes: n, stored: n, offset: at, crc: crc32c.Sum(raw)})
		p.ops = append(p.ops, op{kind: doc.KindAttention, owner: int32(i), tiers: []tier{{records: []int32{int32(i)}, bytes: n}}})
		p.steps = append(p.steps, int32(i))
		at += n
	}
	s.records = p.records
	s.reader = stream.NewReader(stream.Options{Workers: 3, Clock: s.clock})
	limits := [heldLines]int64{inRing: bytes}
	r := &ring{reads: s, manager: newResidencyManager(p.records, limits), memory: make([]byte, bytes)}
	r.entries, _ = p.layRing(Scheduled, &residency{resident: make([]bool, len(sizes)), ring: bytes})
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkEntry checks that an entry's bytes are those of its record.
func checkEntry(t *testing.T, r *ring, entry int) {
	t.Helper()
	for _, part := range r.entries[entry].parts {
		rec := &r.reads.records[part.record]
		if got := crc32c.Sum(r.memory[part.at:][:rec.bytes]); got != rec.crc {
			t.Fatalf("entry %d holds other bytes than its record", entry)
		}
	}
}

// With the least ring that the planner gives, every op's bytes are right and
// stay right while it is in use, however reads are delayed and whichever
// visits are given up at a deadline or skipped.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		sizes := make([]int64, 1+rng.IntN(12))
		bytes := make([]int64, len(sizes))
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(9)
			bytes[i] = sizes[i] * footprint.RecordAlign
		}
		least := footprint.RingBytes(bytes)
		size := least + footprint.RecordAlign*rng.Int64N(30)*rng.Int64N(2)
		seed := rng.Uint64()
		synctest.Test(t, func(t *testing.T) {
			dr := rand.New(rand.NewPCG(seed, 1))
			delays := make(chan time.Duration, 10000)
			for range cap(delays) {
				delays <- time.Duration(dr.IntN(20)) * time.Millisecond
			}
			r := testRing(sizes, size, patternFile{delay: func() time.Duration { return <-delays }})
			defer r.reads.reader.Close()
			must(t, r.restart(int64(20*len(sizes))))
			for step := range 20 {
				for i := range sizes {
					if dr.IntN(15) == 0 {
						must(t, r.skip())
						continue
					}
					deadline := never
					if dr.IntN(4) == 0 {
						deadline = r.reads.clock.Now() + time.Duration(dr.IntN(10))*time.Millisecond
					}
					switch arrived, err := r.acquire(t.Context(), i, deadline); {
					case err != nil:
						t.Fatal(err)
					case !arrived && deadline == never:
						t.Fatal("a read without a deadline missed it")
					case !arrived:
						must(t, r.leave())
						continue
					}
					checkEntry(t, r, i)
					time.Sleep(time.Duration(dr.IntN(10)) * time.Millisecond) // compute
					checkEntry(t, r, i)
					must(t, r.release())
				}
				if step == 10 {
					must(t, r.restart(int64(9*len(sizes))))
				}
			}
			if r.submitted > r.done {
				t.Errorf("%d visits were read beyond the last", r.submitted-r.done)
			}
		})
	}
}

// A ring with room reads ahead: the time of reading hides behind computing.
func TestRingReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := []int64{2, 2, 2, 2}
		read := func() time.Duration { return 10 * time.Millisecond }
		r := testRing(sizes, 6*footprint.RecordAlign, patternFile{delay: read})
		defer r.reads.reader.Close()
		must(t, r.restart(40))
		start := time.Now()
		for range 10 {
			for i := range sizes {
				if _, err := r.acquire(t.Context(), i, never); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
				must(t, r.release())
			}
		}
		if got, want := time.Since(start), 40*20*time.Millisecond+10*time.Millisecond; got != want {
			t.Errorf("40 ops of 20 ms, each read in 10 ms, took %v, want %v", got, want)
		}
	})
}

// An op out of turn is a defect, not a wrong answer.
func TestRingOutOfTurn(t *testing.T) {
	r := testRing([]int64{1, 1}, 3*footprint.RecordAlign, patternFile{})
	defer r.reads.reader.Close()
	if _, err := r.acquire(context.Background(), 1, never); err == nil {
		t.Error("entry 1 before entry 0 is no error")
	}
}
