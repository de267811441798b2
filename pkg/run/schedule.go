package run

import (
	"context"

	"substrate/pkg/stream"
)

// scheduleSlots moves upgrades into the slots of layers whose experts are all
// resident at their default tier. Every slot_period_tokens the experts used
// last take the slots; their reads begin slot_lead_tokens before and are waited
// for if late. So what is in a slot at a token is a function of the routing of
// the tokens before, never of the disk.
func (r *Run) scheduleSlots(ctx context.Context) error {
	period, lead := r.period, r.lead
	switch at := r.tokens % period; {
	case at == (period-lead)%period && r.tokens >= period-lead:
		for l := range r.banks {
			if b := &r.banks[l]; b.tier == 1 {
				r.choose(b)
			}
		}
		if lead > 0 {
			return nil
		}
		fallthrough
	case at == 0:
		for l := range r.banks {
			if b := &r.banks[l]; b.tier == 1 {
				for i := range b.slots {
					if s := &b.slots[i]; s.tag >= 0 && !s.ready {
						if err := r.awaitSlot(ctx, s); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// choose gives a layer's slots to the experts used last. Those that have one
// keep it, the others take the slots of experts that are no longer among them.
func (r *Run) choose(b *bank) {
	experts := r.experts[b.layer]
	for i := range b.slots {
		b.slots[i].pinned = false
	}
	r.missing = r.missing[:0]
	for range b.slots {
		best := int32(-1)
		for e := range experts {
			x := &experts[e]
			if len(x.upgrade) == 0 || x.used == 0 || x.chosen {
				continue
			}
			if best < 0 || x.used > experts[best].used {
				best = int32(e)
			}
		}
		if best < 0 {
			break
		}
		experts[best].chosen = true
		if s := b.of[best]; s >= 0 {
			b.slots[s].pinned = true
		} else {
			r.missing = append(r.missing, best)
		}
	}
	for _, e := range r.missing {
		s := b.victim()
		b.slots[s].pinned, b.slots[s].used = true, r.stepCount
		r.fill(b, s, e, experts[e].upgrade, stream.Promotion)
	}
	for i := range b.slots {
		b.slots[i].pinned = false
	}
	for e := range experts {
		experts[e].chosen = false
	}
}

// dropBanks takes all reads of slots back and empties the slots.
func (r *Run) dropBanks() {
	for l := range r.banks {
		b := &r.banks[l]
		for i := range b.slots {
			s := &b.slots[i]
			for j := range s.n {
				r.reads.drop(&s.reads[j])
			}
			s.tag, s.ready, s.pinned, s.used, s.n = -1, false, false, 0, 0
		}
		for e := range b.of {
			b.of[e] = -1
		}
	}
}
