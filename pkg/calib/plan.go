package calib

import (
	"context"
	"fmt"
	"strings"

	"substrate/pkg/doc"
	"substrate/pkg/quant"
)

// PlanRecords makes the records of a plan's tiers from the source, as sb-pack
// makes them: every op at its default tier, or at its top one.
func PlanRecords(src Rows, plan *doc.Plan, top bool, stats *quant.Stats, threads int) (Records, error) {
	levels := make(map[string]*doc.Level, len(plan.OpBundles))
	for i := range plan.OpBundles {
		b := &plan.OpBundles[i]
		if len(b.Tiers) == 0 {
			return nil, fmt.Errorf("op %s has no tier", b.Op)
		}
		t := &b.Tiers[0]
		if top {
			t = &b.Tiers[len(b.Tiers)-1]
		}
		levels[b.Op] = &doc.Level{ID: t.Level, Encodings: strings.Split(t.Level, "+")}
	}
	c := newCoder(plan.Encodings, src, stats, threads)
	return func(ctx context.Context, op *doc.Op) ([]quant.Record, error) {
		level := levels[op.ID]
		if level == nil {
			return nil, fmt.Errorf("op %s is not in the plan", op.ID)
		}
		return c.records(ctx, op, level)
	}, nil
}
