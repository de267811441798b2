package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"substrate/internal/cli"
	"substrate/internal/clitest"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/model"
	"substrate/pkg/synth"
)

func TestMain(m *testing.M) {
	clitest.Main(m, map[string]func(){"sb-pack": main, "make-plan": makePlan, "make-model": makeModel})
}

func TestScripts(t *testing.T) { clitest.Run(t, "testdata/script") }

func TestPlanName(t *testing.T) {
	for arg, want := range map[string]string{"": "default", "-": "default", "plan.json": "plan", "/a/8G.json.zst": "8G", "b.zst": "b", "plain": "plain"} {
		if got := planName(arg); got != want {
			t.Errorf("%q: got %q, want %q", arg, got, want)
		}
	}
}

// A folder that is no store is not walked: it may be "/".
func TestStoreBytes(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("data", "12345")
	if got := storeBytes(folder); got != 0 {
		t.Errorf("a folder of other things counts as a store of %d bytes", got)
	}
	write("manifest.json", "{}")
	if got := storeBytes(folder); got != 7 {
		t.Errorf("a store of 7 bytes has %d", got)
	}
}

// makeModel is the program "make-model DIR": a model that takes a moment to
// pack, in many small records.
func makeModel() {
	shape := synth.Shape{ModelID: "made", Layers: 60, Hidden: 128, Heads: 4, Vocab: 512, Intermediate: 512}
	if err := synth.Checkpoint(context.Background(), os.Args[1], shape, synth.Weights{}); err != nil {
		panic(err)
	}
}

// makePlan is the program "make-plan MODEL BITS [STATISTICS]": a plan that
// holds every op at BITS, groups of 32, lsq.
func makePlan() {
	m, err := model.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer m.Close()
	bits, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	e := doc.Encoding{Bits: bits, Group: 32, Scale: "bf16", Fit: "lsq", FitVersion: 1}
	e.ID = doc.EncodingID(&e)
	profile := m.Profile()
	p := &doc.Plan{
		Format: doc.FormatPlan, ModelID: profile.ModelID, HeaderSHA256: profile.HeaderSHA256, Statistics: cli.Arg(os.Args, 3),
		Strategy: "uniform", Objective: doc.ObjectiveKL, Budget: doc.Budget{MaxRAMBytes: 1 << 40, ContextTokens: 128},
		KVCacheType: "f32", PrefillChunk: 16, SlotPeriod: 16, SlotLead: 4, Encodings: []doc.Encoding{e},
		Fallback: doc.FallbackPolicy{LatencyWarnFactor: 1.5, LatencyCriticalFactor: 3, SSDCriticalFactor: 0.5},
	}
	for i := range profile.Ops {
		op := &profile.Ops[i]
		if len(op.Tensors) == 0 {
			continue
		}
		l, err := footprint.Layout(op, &e)
		if err != nil {
			panic(err)
		}
		id := op.ID + ".skeleton"
		p.Catalog = append(p.Catalog, doc.CatalogRecord{ID: id, Op: op.ID, Encoding: e.ID, RAMBytes: l.Bytes, SSDBytes: l.Bytes})
		p.OpBundles = append(p.OpBundles, doc.OpBundle{Op: op.ID, Kind: op.Kind, Tiers: []doc.Tier{
			{Level: e.ID, Requires: []string{id}, Fallback: doc.FallbackStall},
		}})
		p.Scheduled.Resident = append(p.Scheduled.Resident, id)
		p.PeakBytes += l.Bytes
	}
	p.Memory = []doc.LedgerLine{{Name: doc.LedgerWeights, Bytes: p.PeakBytes}}
	p.Scheduled.Ledger = p.Memory
	p.Exact = p.Scheduled
	b, err := doc.Write(p)
	if err != nil {
		panic(err)
	}
	fmt.Print(string(b))
}
