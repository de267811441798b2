package plan

import (
	"math"
	"testing"

	"substrate/pkg/doc"
)

func testMachine() *doc.Machine {
	return &doc.Machine{
		Format: doc.FormatMachine, Source: doc.SourceMeasured, Threads: 2,
		Reads: []doc.ReadPoint{
			{Bytes: 1 << 16, Depth: 1, BytesPerSec: 100e6}, {Bytes: 1 << 16, Depth: 4, BytesPerSec: 400e6},
			{Bytes: 1 << 20, Depth: 1, BytesPerSec: 500e6}, {Bytes: 1 << 20, Depth: 4, BytesPerSec: 1000e6},
		},
		Kernels: []doc.KernelRate{
			{Backend: "ref", Bits: 4, Group: 64, Rows: 512, Cols: 512, Tokens: 1, TimeNs: 1e9},
			{Backend: "cpu", Activations: "int8", Bits: 4, Group: 64, Rows: 512, Cols: 512, Tokens: 1, TimeNs: 10_000},
			{Backend: "cpu", Activations: "int8", Bits: 4, Group: 64, Rows: 1024, Cols: 1024, Tokens: 1, TimeNs: 34_000},
			{Backend: "cpu", Activations: "int8", Bits: 4, Group: 64, Rows: 1024, Cols: 1024, Tokens: 64, TimeNs: 1e9},
		},
	}
}

// Products take the time of the sizes around them, of the backend that a run
// takes, one token at a time.
func TestProductTimes(t *testing.T) {
	s := newSpeeds(testMachine(), 0)
	for _, c := range []struct {
		bits, rows, cols int
		want             float64
	}{
		{4, 512, 512, 10_000},
		{4, 1024, 1024, 34_000},
		{4, 1024, 640, 10_000 + 24_000*(1024*640-512*512)/(1024*1024-512*512.0)},
		{4, 256, 256, 2_500},
		{4, 2048, 1024, 68_000},
		{8, 512, 512, 20_000}, // not measured: twice the bits
	} {
		if got := s.product(c.bits, 0, c.rows, c.cols); math.Abs(got-c.want) > 1e-6*c.want {
			t.Errorf("%d bits, [%d, %d]: %v ns, want %v", c.bits, c.rows, c.cols, got, c.want)
		}
	}
}

// Reads ahead go one at a time, demands together, at the rate of their size;
// a limit of the budget holds for both.
func TestReadTimes(t *testing.T) {
	s := newSpeeds(testMachine(), 0)
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-6*want }
	if got := s.read(1e6, 1<<20); !near(got, 2e6) {
		t.Errorf("reading 1 MB ahead takes %v ns", got)
	}
	if got := s.read(1e6, 1<<18); !near(got, 1e6/300e6*1e9) { // half way of the logarithm
		t.Errorf("reading 1 MB ahead in pieces of 256 KiB takes %v ns", got)
	}
	if got := s.demand(1e6, 1<<20, 8); !near(got, 1e6) {
		t.Errorf("reading 1 MB of 8 experts takes %v ns", got)
	}
	if got := s.demand(1e6, 1<<20, 1); !near(got, 2e6) {
		t.Errorf("reading 1 MB of one expert takes %v ns", got)
	}
	s = newSpeeds(testMachine(), 1e8)
	if got := s.demand(1e6, 1<<20, 8); !near(got, 1e7) {
		t.Errorf("reading 1 MB at --ssd-bw 100MB takes %v ns", got)
	}
}

// Each term of a token's time has its source, and they add up to the time.
func TestSpeedTerms(t *testing.T) {
	s := newSpeeds(testMachine(), 0)
	u := usage{}
	u.computeNs, u.ringNs, u.demandNs = 5e6, 7e6, 2e6
	sum := map[string]int64{}
	for _, term := range s.terms(&u, 1e6) {
		if term.Source == "" {
			t.Errorf("%s has no source", term.Name)
		}
		sum[term.Name] = term.Ns
	}
	if got := max(sum[doc.TermProducts]+sum[doc.TermFixed], sum[doc.TermAhead]) + sum[doc.TermDemand]; got != int64(u.timeNs()) {
		t.Errorf("the terms %v make %d ns, the token takes %v", sum, got, u.timeNs())
	}
}
