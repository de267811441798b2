package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/quant"
	"substrate/pkg/store"
)

// openStore opens a store whose records are read as they are.
func openStore(path string, m *model.Model, o *verifyOptions) (*subject, error) {
	s, err := store.Open(path)
	if err != nil {
		return nil, err
	}
	plan, err := s.Plan(o.plan)
	if err != nil {
		return nil, err
	}
	if err := checkModel(s.Manifest().Profile.HeaderSHA256, m); err != nil {
		return nil, err
	}
	stats, err := controlStats(plan.Plan, o)
	if err != nil {
		return nil, err
	}
	tiers := make(map[string]*doc.Tier, len(plan.OpBundles))
	for i := range plan.OpBundles {
		b := &plan.OpBundles[i]
		tiers[b.Op] = tierOf(b, o.tier == "top")
	}
	records := func(_ context.Context, op *doc.Op) ([]quant.Record, error) {
		tier := tiers[op.ID]
		if tier == nil {
			return nil, cli.BadDocument("op %s is not in plan %q of the store", op.ID, o.plan)
		}
		var out []quant.Record
		for _, id := range tier.Requires {
			r := plan.Record(id)
			if r == nil {
				return nil, fmt.Errorf("op %s: record %s is not in the store", op.ID, id)
			}
			layout := s.Layout(r)
			b := make([]byte, layout.Bytes)
			if err := s.Read(b, r); err != nil {
				return nil, err
			}
			out = append(out, quant.Record{Layout: layout, Bytes: b})
		}
		return out, nil
	}
	return &subject{kind: "store", plan: plan.Plan, stats: stats, records: records, store: s, close: func() { stats.Close() }}, nil
}

// pack makes the store of a plan in a temporary folder: a run reads records
// from a store.
func (s *subject) pack(ctx context.Context, m *model.Model, o *verifyOptions) error {
	dir, err := os.MkdirTemp("", "sb-calibrate-")
	if err != nil {
		return err
	}
	stats := s.close
	s.close = func() {
		stats()
		os.RemoveAll(dir)
	}
	build, err := store.NewBuild(store.Spec{Profile: m.Profile(), Plans: []store.NamedPlan{{Name: "default", Plan: s.plan}}})
	if err == nil {
		path := filepath.Join(dir, "store")
		_, err = build.Write(ctx, path, store.Options{Source: m, Stats: s.stats, Weights: m.WeightsSHA256, Threads: o.backend.Threads.Count()})
		if err == nil {
			s.store, err = store.Open(path)
		}
	}
	if err != nil {
		s.close()
	}
	return err
}

// controlStats opens the statistics for uniform controls; without controls a
// store needs none.
func controlStats(plan *doc.Plan, o *verifyOptions) (*quant.Stats, error) {
	if o.controls == "" {
		return nil, nil
	}
	return findStats(plan.Statistics, o.stats)
}
