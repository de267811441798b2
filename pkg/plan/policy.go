package plan

import (
	"fmt"
	"slices"
	"strconv"

	"substrate/pkg/doc"
)

// pinned is a table whose levels are those that a policy allows, with what
// the policy did.
type pinned struct {
	table *doc.Table
	pins  []doc.PlanPin
}

// pin takes from every item the levels that the policy (nil: the default)
// does not allow. The table that it is given stays as it is.
func pin(t *doc.Table, policy *doc.Policy) (pinned, error) {
	if policy == nil {
		policy = doc.DefaultPolicy()
	}
	p := pinner{encodings: make(map[string]*doc.Encoding, len(t.Encodings)), levels: make(map[string]*doc.Level, len(t.Levels))}
	for i := range t.Encodings {
		p.encodings[t.Encodings[i].ID] = &t.Encodings[i]
	}
	for i := range t.Levels {
		p.levels[t.Levels[i].ID] = &t.Levels[i]
	}
	p.keep(&t.Profile)
	rules, err := rulesOf(t, policy)
	if err != nil {
		return pinned{}, err
	}
	out := *t
	out.Items = slices.Clone(t.Items)
	ops := make(map[string]*doc.Op, len(t.Profile.Ops))
	for i := range t.Profile.Ops {
		ops[t.Profile.Ops[i].ID] = &t.Profile.Ops[i]
	}
	for i := range out.Items {
		it := &out.Items[i]
		op := ops[it.Op]
		if op == nil || !coded(op) {
			continue // kept at 16 bits or more as it is
		}
		for r := range rules {
			if !rules[r].of(op, it) {
				continue
			}
			if err := p.restrict(it, &rules[r]); err != nil {
				return pinned{}, err
			}
		}
	}
	return pinned{&out, p.list(rules)}, nil
}

// coded reports whether an op has a tensor that an encoding decides on.
func coded(op *doc.Op) bool {
	return slices.ContainsFunc(op.Tensors, func(t doc.Tensor) bool { return !t.Keep })
}

// rule is one pin of a policy, ready to be applied.
type rule struct {
	place string // JSON pointer into the policy
	of    func(*doc.Op, *doc.Item) bool
	bits  int
	level string
	why   string
	ops   []string // that it was of
}

// rulesOf lists a policy's rules.
func rulesOf(t *doc.Table, policy *doc.Policy) ([]rule, error) {
	var rules []rule
	for i := range policy.Pins {
		pin := &policy.Pins[i]
		place := "/pins/" + strconv.Itoa(i)
		if pin.Op != "" && !slices.ContainsFunc(t.Items, func(it doc.Item) bool { return it.Op == pin.Op }) {
			return nil, &PolicyError{place + "/op", fmt.Sprintf("op %q is no item of the table", pin.Op)}
		}
		if pin.Level != "" && !slices.ContainsFunc(t.Levels, func(l doc.Level) bool { return l.ID == pin.Level }) {
			return nil, &PolicyError{place + "/level", fmt.Sprintf("level %q is not in the table", pin.Level)}
		}
		rules = append(rules, rule{place: place, bits: pin.MinBits, level: pin.Level, why: pin.Reason, of: func(op *doc.Op, it *doc.Item) bool {
			return pin.Matches(op) && !(pin.UnmeasuredOnly && measured(it))
		}})
	}
	if s := policy.SuperExperts; s != nil {
		median := medianExpertLoss(t)
		rules = append(rules, rule{
			place: "/super_experts", bits: s.MinBits,
			why: fmt.Sprintf("super expert: loses at least %g times as much as the median expert at the cheapest level", s.LossFactor),
			of: func(op *doc.Op, it *doc.Item) bool {
				return op.Kind == doc.KindMoEExpert && median > 0 && cheapestLoss(it) >= s.LossFactor*median
			},
		})
	}
	if r := policy.RareExperts; r != nil {
		rules = append(rules, rule{
			place: "/rare_experts", bits: r.MinBits,
			why: fmt.Sprintf("rare expert: served fewer than %g of the tokens, too few to trust its losses", r.HitShareBelow),
			of: func(op *doc.Op, it *doc.Item) bool {
				return op.Kind == doc.KindMoEExpert && it.HitShare < r.HitShareBelow
			},
		})
	}
	return rules, nil
}

// measured reports whether some loss of an item is not a prior.
func measured(it *doc.Item) bool {
	return slices.ContainsFunc(it.Levels, func(l doc.ItemLevel) bool { return l.Source != doc.SourcePrior })
}

// cheapestLoss is the KL of an item at its level of the fewest bytes.
func cheapestLoss(it *doc.Item) float64 {
	least := &it.Levels[0]
	for i := range it.Levels {
		if it.Levels[i].RAMBytes < least.RAMBytes {
			least = &it.Levels[i]
		}
	}
	return least.KL
}

// medianExpertLoss is the median over all experts of the loss at the cheapest
// level; 0 without experts.
func medianExpertLoss(t *doc.Table) float64 {
	kinds := make(map[string]doc.Kind, len(t.Profile.Ops))
	for i := range t.Profile.Ops {
		kinds[t.Profile.Ops[i].ID] = t.Profile.Ops[i].Kind
	}
	var losses []float64
	for i := range t.Items {
		if kinds[t.Items[i].Op] == doc.KindMoEExpert && len(t.Items[i].Levels) > 0 {
			losses = append(losses, cheapestLoss(&t.Items[i]))
		}
	}
	if len(losses) == 0 {
		return 0
	}
	slices.Sort(losses)
	return losses[len(losses)/2]
}

// pinner restricts items.
type pinner struct {
	encodings map[string]*doc.Encoding
	levels    map[string]*doc.Level
	kept      []string // ops that every plan stores at 16 bits or more
}

// keep notes the ops of which nothing is coded.
func (p *pinner) keep(profile *doc.Profile) {
	for i := range profile.Ops {
		if op := &profile.Ops[i]; len(op.Tensors) > 0 && !coded(op) {
			p.kept = append(p.kept, op.ID)
		}
	}
}

// restrict leaves an item the levels that a rule allows.
func (p *pinner) restrict(it *doc.Item, r *rule) error {
	allowed := make([]doc.ItemLevel, 0, len(it.Levels))
	for _, l := range it.Levels {
		if r.level != "" && l.Level == r.level || r.level == "" && p.bits(l.Level) >= r.bits {
			allowed = append(allowed, l)
		}
	}
	if len(allowed) == 0 {
		want := "of level " + r.level
		if r.level == "" {
			want = fmt.Sprintf("of %d bits or more", r.bits)
		}
		return &PolicyError{r.place, fmt.Sprintf("op %q has nothing %s in the table, or an earlier pin took it away", it.Op, want)}
	}
	it.Levels = allowed
	r.ops = append(r.ops, it.Op)
	return nil
}

// bits is the precision of a level: the fewest bits of any role of each of
// its encodings, added up, as a residual codes what the ones below it leave.
func (p *pinner) bits(level string) (sum int) {
	l := p.levels[level]
	if l == nil {
		return 0
	}
	for _, id := range l.Encodings {
		if e := p.encodings[id]; e != nil {
			sum += e.LeastBits()
		}
	}
	return sum
}

// list writes down what was pinned, and why.
func (p *pinner) list(rules []rule) []doc.PlanPin {
	var pins []doc.PlanPin
	if len(p.kept) > 0 {
		pins = append(pins, doc.PlanPin{Reason: "norms and routers are stored at 16 bits or more in every plan", MinBits: 16, Ops: p.kept})
	}
	for _, r := range rules {
		if len(r.ops) > 0 {
			pins = append(pins, doc.PlanPin{Reason: r.why, MinBits: r.bits, Level: r.level, Ops: r.ops})
		}
	}
	return pins
}

// mark notes the items that pins are of.
func (p *problem) mark(pins []doc.PlanPin) {
	pinned := map[string]bool{}
	for i := range pins {
		for _, op := range pins[i].Ops {
			pinned[op] = true
		}
	}
	for i := range p.items {
		if op := p.items[i].op; op != nil {
			p.items[i].pinned = pinned[op.ID]
		}
	}
}

// PolicyError says which rule of a policy a table cannot follow.
type PolicyError struct {
	Place  string // JSON pointer
	Reason string
}

func (e *PolicyError) Error() string { return "policy: " + e.Place + ": " + e.Reason }

// ExitCode is that of a bad document.
func (e *PolicyError) ExitCode() int { return 3 }
