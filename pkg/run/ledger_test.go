package run

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"substrate/internal/mem"
	"substrate/pkg/backend"
	"substrate/pkg/backend/cpu"
	"substrate/pkg/backend/ref"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/store"
)

// A refusal comes before anything is allocated, lists the terms, and says the
// least budget, which works; a little less does not.
func TestRefusal(t *testing.T) {
	for _, name := range []string{"llama-gqa", "qwen3moe-mixed"} {
		for _, mode := range []Mode{Scheduled, Exact} {
			spec := residencies()["resident"]
			spec.ladder = mixed
			st := pack(t, name, false, spec)
			try := func(ram int64) (*RefusedError, error) {
				// The test's own process, whose size varies, is far below this base.
				o := Options{Mode: mode, CapBytes: ram, CapSource: "flag", ProcessBase: 1 << 30}
				r, err := Open(t.Context(), st, "", ref.Open(1), o)
				if err == nil {
					if got := doc.SumLedger(r.Ledger()); got > ram {
						t.Errorf("%s: the ledger adds up to %d under a cap of %d", name, got, ram)
					}
					return nil, r.Close()
				}
				refused, _ := errors.AsType[*RefusedError](err)
				return refused, err
			}
			first, err := try(1)
			if first == nil || first.Smallest == 0 {
				t.Fatalf("%s: a cap of 1 byte: %v", name, err)
			}
			for _, want := range []string{"the cap is 1 bytes (flag)", "weights ", "ring ", "kv_cache ", "process_base "} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q is not in %q", name, want, err)
				}
			}
			if sum := doc.SumLedger(first.Ledger); sum > first.Smallest || sum < first.Smallest-4096 {
				t.Errorf("%s: the terms add up to %d, the smallest budget is %d", name, sum, first.Smallest)
			}
			if _, err := try(first.Smallest); err != nil {
				t.Errorf("%s: the smallest budget is refused: %v", name, err)
			}
			if less, _ := try(first.Smallest - 8192); less == nil || less.Smallest != first.Smallest {
				t.Errorf("%s: less than the smallest budget: %+v", name, less)
			}
		}
	}
}

// An environment that gives less than the cap refuses.
func TestEnvironmentRefuses(t *testing.T) {
	st := pack(t, "llama-gqa", false, planSpec{ladder: mixed})
	for want, env := range map[string]mem.Environment{
		"cgroup /x limits this process to 1000000":         {Total: 1 << 40, Available: 1 << 40, Cgroup: mem.Cgroup{Limit: 1e6, Room: 1 << 30, Group: "/x"}},
		"but the cgroup has 5 left":                        {Total: 1 << 40, Available: 1 << 40, Cgroup: mem.Cgroup{Limit: 1 << 40, Room: 5}},
		"but the machine's available memory has 1000 left": {Total: 1 << 40, Available: 1000, Cgroup: mem.Cgroup{Limit: mem.NoLimit, Room: mem.NoLimit}},
		"": {Total: 1 << 40, Available: 1 << 40, Cgroup: mem.Cgroup{Limit: 1 << 30, Room: 1 << 40}},
	} {
		r, err := Open(t.Context(), st, "", ref.Open(1), Options{Environment: &env})
		_, refused := errors.AsType[*RefusedError](err)
		if want == "" {
			if err != nil {
				t.Error(err)
				continue
			}
			r.Close()
		} else if !refused || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// What backends hold beside slabs is what the ledger has for it.
func TestOverheadIsInTheLedger(t *testing.T) {
	for _, name := range slices.Concat(models, families) {
		for _, kv := range []string{"f32", "f16"} {
			backends := []backend.Backend{ref.Open(2)}
			if b, err := cpu.Open(cpu.Options{Threads: 2}); err == nil {
				backends = append(backends, b)
			}
			for _, b := range backends {
				who := b.Name()
				spec := residencies()["every other expert"]
				spec.ladder, spec.chunk = mixed, 64
				r, err := Open(t.Context(), pack(t, name, false, spec), "", b, Options{asPlanned: true, KVType: kv, Threads: 2})
				if err != nil {
					t.Fatal(err)
				}
				const handles = 64 << 10 // a page of descriptors at a time
				have, listed := r.backend.Overhead(), r.fixed.KV+r.fixed.Scratch
				if have > listed+handles {
					t.Errorf("%s, %s, %s: the backend holds %d bytes, the ledger has %d for it", name, kv, who, have, listed)
				}
				if who == "cpu" && have < listed*8/10 {
					t.Errorf("%s, %s, %s: the backend holds %d bytes, the ledger has %d for it", name, kv, who, have, listed)
				}
				for _, counted := range r.counted.Lines() {
					i := slices.IndexFunc(r.ledger, func(l doc.LedgerLine) bool { return l.Name == counted.Name })
					if i < 0 || r.ledger[i].Bytes != counted.Bytes {
						t.Errorf("%s, %s, %s: %d bytes of %s were allocated, the ledger is %v", name, kv, who, counted.Bytes, counted.Name, r.ledger)
					}
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestChoosePlan(t *testing.T) {
	m, err := model.Open(filepath.Join("../../testdata/models", "llama-gqa"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	named := func(name string, l func(*doc.Op) ladder) store.NamedPlan {
		return store.NamedPlan{Name: name, Plan: makePlan(t, m.Profile(), planSpec{ladder: l})}
	}
	plans := []store.NamedPlan{
		named("middle", func(*doc.Op) ladder { return ladder{{q4}} }),
		named("large", func(*doc.Op) ladder { return ladder{{q8}} }),
		named("small", func(*doc.Op) ladder { return ladder{{q2}} }),
	}
	build, err := store.NewBuild(store.Spec{Profile: m.Profile(), Plans: plans})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.sb")
	if _, err := build.Write(t.Context(), path, store.Options{Source: m, Weights: m.WeightsSHA256}); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	peak := func(i int) int64 { return plans[i].Plan.PeakBytes }
	for ram, want := range map[int64]string{
		1: "small", peak(2) - 1: "small", peak(2): "small", peak(0) - 1: "small", peak(0): "middle", peak(1) - 1: "middle", peak(1): "large", 1 << 40: "large",
	} {
		if got, err := ChoosePlan(st, ram); err != nil || got != want {
			t.Errorf("cap %d: got %q, %v, want %q", ram, got, err, want)
		}
	}
}
