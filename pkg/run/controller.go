package run

import (
	"fmt"

	"substrate/pkg/doc"
)

// A TierController is the state machine that selects, op by op, among the
// tiers that a plan holds. It plans nothing: an op whose disagreement exceeds
// the policy's threshold goes up one tier if the pool has room, holds it for
// persistence_tokens quiet tokens and goes back to its default. When the pool
// or the number of escalations is full, the laziest escalated op makes way: the
// one that disagreed least when last observed, of those the one with most
// persistence left.
//
// Ops are addressed by their index in the plan's op_bundles. Nothing is
// allocated after NewTierController.
type TierController struct {
	plan  *doc.Plan
	index map[string]int
	ops   []tierState
	up    []int32 // escalated ops, at most MaxConcurrent
	used  int64

	// OnChange, if set, is told of every change of tier.
	OnChange func(TierChange)
	// ReadBytes, if set, is what an op's tier would have to read before it can
	// act. An escalation skips a tier for a better one that has less to read:
	// one that is present, or cheap.
	ReadBytes func(op, tier int) int64
}

// tierState is the state of one op.
type tierState struct {
	tier         int
	persistence  int // quiet tokens until it goes back
	disagreement float64
	observed     bool // above the threshold in this token
}

// TierChange is one change of an op's active tier.
type TierChange struct {
	Op           int // index in op_bundles
	From, To     int
	Reason       string // "escalate", "decay", "evict", "demote_all", as in doc.TierLine
	Disagreement float64
	PoolUsed     int64
}

// NewTierController starts with every op at its default tier.
func NewTierController(plan *doc.Plan) *TierController {
	c := &TierController{
		plan:  plan,
		index: make(map[string]int, len(plan.OpBundles)),
		ops:   make([]tierState, len(plan.OpBundles)),
		up:    make([]int32, 0, plan.Escalation.MaxConcurrent),
	}
	for i := range plan.OpBundles {
		c.index[plan.OpBundles[i].Op] = i
	}
	return c
}

// Index finds an op by its id.
func (c *TierController) Index(op string) (i int, ok bool) {
	i, ok = c.index[op]
	return i, ok
}

// ActiveTier is the index of an op's active tier.
func (c *TierController) ActiveTier(op int) int { return c.ops[op].tier }

// Active is an op's active tier, by the op's id. An id that the plan does not
// have is a mistake of the caller's.
func (c *TierController) Active(op string) *doc.Tier {
	i, ok := c.index[op]
	if !ok {
		panic(fmt.Sprintf("op %q is not in the plan", op))
	}
	return &c.plan.OpBundles[i].Tiers[c.ops[i].tier]
}

// PoolUsed is how much of the escalation pool the active tiers take, in bytes.
func (c *TierController) PoolUsed() int64 { return c.used }

// Observe takes the disagreement of an op in the current token: how far its
// output is from its top tier's, ||y_top - y|| / ||y_top||. What exceeds the
// disagreement that the plan expects of the active tier counts. It escalates at
// once, by one step per token at most.
func (c *TierController) Observe(op int, disagreement float64) {
	s := &c.ops[op]
	tiers := c.plan.OpBundles[op].Tiers
	disagreement -= tiers[s.tier].Disagreement
	s.disagreement = disagreement
	if !(disagreement > c.plan.Escalation.Threshold) {
		return
	}
	if s.tier > 0 {
		s.persistence = c.plan.Escalation.PersistenceTokens
	}
	if s.observed {
		return
	}
	s.observed = true
	if s.tier+1 == len(tiers) {
		return
	}
	to := c.next(op)
	if !c.makeRoom(op, tiers[to].DeltaBytes-tiers[s.tier].DeltaBytes) {
		if to == s.tier+1 {
			return
		}
		// The better tier does not fit the pool; the next one may.
		if to = s.tier + 1; !c.makeRoom(op, tiers[to].DeltaBytes-tiers[s.tier].DeltaBytes) {
			return
		}
	}
	if s.tier == 0 {
		c.up = append(c.up, int32(op))
	}
	s.persistence = c.plan.Escalation.PersistenceTokens
	c.change(op, to, "escalate")
}

// next is the tier that an op escalates to: the one above, unless a better one
// has less to read.
func (c *TierController) next(op int) int {
	to := c.ops[op].tier + 1
	if c.ReadBytes == nil {
		return to
	}
	least := c.ReadBytes(op, to)
	for t := to + 1; t < len(c.plan.OpBundles[op].Tiers) && least > 0; t++ {
		if bytes := c.ReadBytes(op, t); bytes < least {
			to, least = t, bytes
		}
	}
	return to
}

// makeRoom evicts lazier ops until the op at hand can take more bytes. It
// evicts none if that would not do.
func (c *TierController) makeRoom(op int, more int64) bool {
	s := &c.ops[op]
	free, places := c.plan.PoolBytes-c.used, cap(c.up)-len(c.up)
	if s.tier > 0 {
		places = 1 // it has its own
	}
	if free >= more && places > 0 {
		return true
	}
	var could int64
	count := 0
	for _, i := range c.up {
		if int(i) != op && c.ops[i].disagreement < s.disagreement {
			could += c.plan.OpBundles[i].Tiers[c.ops[i].tier].DeltaBytes
			count++
		}
	}
	if free+could < more || places+count == 0 {
		return false
	}
	for free < more || places == 0 {
		i := c.laziest(op)
		free += c.plan.OpBundles[i].Tiers[c.ops[i].tier].DeltaBytes
		places++
		c.demote(i, "evict")
	}
	return true
}

// laziest is the escalated op that makes way first for another.
func (c *TierController) laziest(other int) int {
	best := -1
	for _, i := range c.up {
		s := &c.ops[i]
		if int(i) == other {
			continue
		}
		if best < 0 || s.disagreement < c.ops[best].disagreement ||
			s.disagreement == c.ops[best].disagreement && s.persistence > c.ops[best].persistence {
			best = int(i)
		}
	}
	return best
}

// EndToken counts a token: ops that were quiet in it come one closer to their
// default tier.
func (c *TierController) EndToken() {
	for i := len(c.up) - 1; i >= 0; i-- {
		op := int(c.up[i])
		s := &c.ops[op]
		if s.observed {
			s.observed = false
			continue
		}
		if s.persistence--; s.persistence <= 0 {
			c.demote(op, "decay")
		}
	}
	// Ops that disagreed and stayed where they were.
	for i := range c.ops {
		c.ops[i].observed = false
	}
}

// ForceDemoteAll brings every op back to its default tier at once.
func (c *TierController) ForceDemoteAll() {
	for len(c.up) > 0 {
		c.demote(int(c.up[len(c.up)-1]), "demote_all")
	}
}

// demote brings an op back to its default tier.
func (c *TierController) demote(op int, reason string) {
	for i, n := range c.up {
		if int(n) == op {
			c.up = append(c.up[:i], c.up[i+1:]...)
			break
		}
	}
	c.ops[op].persistence = 0
	c.change(op, 0, reason)
}

func (c *TierController) change(op, to int, reason string) {
	s := &c.ops[op]
	from := s.tier
	tiers := c.plan.OpBundles[op].Tiers
	c.used += tiers[to].DeltaBytes - tiers[from].DeltaBytes
	s.tier = to
	if c.OnChange != nil {
		c.OnChange(TierChange{Op: op, From: from, To: to, Reason: reason, Disagreement: s.disagreement, PoolUsed: c.used})
	}
}
