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
//
// In mode fastest the choice is made at every token, and an upgrade is used
// from when it is there.
func (r *Run) scheduleSlots(ctx context.Context) error {
	if r.mode == Fastest {
		if r.monitor.Critical() {
			return nil
		}
		return r.chooseAll()
	}
	period, lead := r.period, r.lead
	switch at := r.tokens % period; {
	case at == (period-lead)%period && r.tokens >= period-lead:
		if err := r.chooseAll(); err != nil || lead > 0 {
			return err
		}
		return r.awaitUpgrades(ctx)
	case at == 0:
		return r.awaitUpgrades(ctx)
	}
	return nil
}

func (r *Run) chooseAll() error {
	for l := range r.banks {
		if b := &r.banks[l]; b.tier == 1 {
			if err := r.choose(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitUpgrades waits for the slots that were chosen.
func (r *Run) awaitUpgrades(ctx context.Context) error {
	for l := range r.banks {
		b := &r.banks[l]
		for i := range b.slots {
			if s := &b.slots[i]; b.tier == 1 && s.tag >= 0 && !s.ready {
				if _, err := r.awaitSlot(ctx, s, never); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// choose gives a layer's slots to the experts used last. Those that have one
// keep it, the others take the slots of experts that are no longer among them.
func (r *Run) choose(b *bank) error {
	for i := range b.slots {
		b.slots[i].pinned = false
	}
	b.recent = r.history.Recent(b.recent[:0], b.layer, len(b.slots), b.may)
	for _, e := range b.recent {
		if s := b.of[e]; s >= 0 {
			b.slots[s].pinned = true
		}
	}
	for _, e := range b.recent {
		if b.of[e] >= 0 {
			continue
		}
		s := b.victim()
		if r.mode == Fastest && !b.slots[s].arrived() {
			break // taking it would wait for its read
		}
		if err := r.fill(b, s, e, r.experts[b.layer][e].upgrade, stream.Promotion); err != nil {
			return err
		}
		b.slots[s].pinned, b.slots[s].used = true, r.stepCount
	}
	for i := range b.slots {
		b.slots[i].pinned = false
	}
	return nil
}

// dropBanks takes all reads of slots back and empties the slots.
func (r *Run) dropBanks() {
	for l := range r.banks {
		b := &r.banks[l]
		for i := range b.slots {
			s := &b.slots[i]
			r.empty(b, s)
			s.pinned, s.used = false, 0
		}
	}
}
