package doc

import "slices"

// Policy is what a user asks of every plan whatever the budget is: precisions
// that the planner may not go below, each with its reason. Norms and routers
// need no pin: they are stored at 16 bits or more in every plan.
type Policy struct {
	Format       string        `json:"format"`
	Pins         []Pin         `json:"pins"`
	SuperExperts *SuperExperts `json:"super_experts,omitempty"`
	RareExperts  *RareExperts  `json:"rare_experts,omitempty"`
	// MaxClasses is the most precisions that the experts of one layer take, as
	// a backend computes those of one precision in one call; 0: 3.
	MaxClasses  int         `json:"max_classes_per_layer,omitzero"`
	Annotations Annotations `json:"annotations,omitempty"`
}

// Pin keeps ops at a precision: those of one id or those of one kind, perhaps
// only in some layers. It names the fewest bits of their codes, the bits of a
// skeleton and its residuals added up, or one level.
type Pin struct {
	Op      string `json:"op,omitempty"`
	Kind    Kind   `json:"kind,omitempty"`
	Layers  []int  `json:"layers,omitempty"` // ascending; empty: all
	MinBits int    `json:"min_bits,omitzero"`
	Level   string `json:"level,omitempty"` // a level's id in the table
	// UnmeasuredOnly keeps the pin away from ops whose losses were measured:
	// they say better what an op needs.
	UnmeasuredOnly bool   `json:"unmeasured_only,omitzero"`
	Reason         string `json:"reason"`
}

// SuperExperts pins the few experts on which all depends, 3 of the 6144 of
// Qwen3-30B-A3B (arXiv:2507.23279): those that lose at least LossFactor times
// as much as the median expert, both at the cheapest level.
type SuperExperts struct {
	LossFactor float64 `json:"loss_factor"`
	MinBits    int     `json:"min_bits"`
}

// RareExperts pins experts that served so few tokens of the calibration that
// their measured losses say little: those of a hit share below the given one.
type RareExperts struct {
	HitShareBelow float64 `json:"hit_share_below"`
	MinBits       int     `json:"min_bits"`
}

// DefaultPolicy is that of a plan for which none was given: what selects or
// ends the computation keeps some precision where nobody measured its losses.
func DefaultPolicy() *Policy {
	return &Policy{Format: FormatPolicy, Pins: []Pin{
		{Kind: KindLMHead, MinBits: 6, UnmeasuredOnly: true, Reason: "nobody measured what the head loses"},
		{Kind: KindEmbedding, MinBits: 4, UnmeasuredOnly: true, Reason: "nobody measured what the embedding loses"},
	}}
}

// maxPinBits is the most that a pin may ask: the bits of a dense matrix.
const maxPinBits = 16

// Validate checks that every pin names ops, a precision and a reason.
func (p *Policy) Validate() error {
	var c checker
	bits := func(n int, path ...any) {
		if n < 1 || n > maxPinBits {
			c.fail(path, "%d: want 1 to %d bits", n, maxPinBits)
		}
	}
	for i := range p.Pins {
		pin := &p.Pins[i]
		switch {
		case (pin.Op == "") == (pin.Kind == ""):
			c.fail(at("pins", i), "op %q and kind %q: want one of them", pin.Op, pin.Kind)
		case pin.Kind != "" && !validKind(pin.Kind):
			c.fail(at("pins", i, "kind"), "kind %q is not known here", pin.Kind)
		case (pin.MinBits == 0) == (pin.Level == ""):
			c.fail(at("pins", i), "min_bits %d and level %q: want one of them", pin.MinBits, pin.Level)
		case pin.Level == "":
			bits(pin.MinBits, "pins", i, "min_bits")
		}
		if pin.Op != "" && len(pin.Layers) > 0 {
			c.fail(at("pins", i, "layers"), "op %q has a layer: layers go with a kind", pin.Op)
		}
		for j, l := range pin.Layers {
			if l < 0 || l >= MaxLayers || j > 0 && l <= pin.Layers[j-1] {
				c.fail(at("pins", i, "layers", j), "layer %d: want ascending layers below %d", l, MaxLayers)
			}
		}
		if pin.Reason == "" {
			c.fail(at("pins", i, "reason"), "empty: say why, the plan shows it")
		}
	}
	if s := p.SuperExperts; s != nil {
		if !validNumber(s.LossFactor, 1) {
			c.fail(at("super_experts", "loss_factor"), "%v: want a finite number of at least 1", s.LossFactor)
		}
		bits(s.MinBits, "super_experts", "min_bits")
	}
	if r := p.RareExperts; r != nil {
		if !validNumber(r.HitShareBelow, 0) || r.HitShareBelow > 1 {
			c.fail(at("rare_experts", "hit_share_below"), "%v: want 0 to 1", r.HitShareBelow)
		}
		bits(r.MinBits, "rare_experts", "min_bits")
	}
	if p.MaxClasses < 0 || p.MaxClasses > MaxExperts {
		c.fail(at("max_classes_per_layer"), "%d: want 0 to %d", p.MaxClasses, MaxExperts)
	}
	return c.err
}

// Matches reports whether a pin is of an op.
func (p *Pin) Matches(op *Op) bool {
	if p.Op != "" {
		return p.Op == op.ID
	}
	return p.Kind == op.Kind && (len(p.Layers) == 0 || slices.Contains(p.Layers, op.Layer))
}
