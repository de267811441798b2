package doc

import "slices"

// Feasibility is the report of sb-feasible: whether a model runs within a
// budget, on which axes it fails, and the smallest changes that help.
type Feasibility struct {
	Format       string  `json:"format"`
	Synthetic    bool    `json:"synthetic,omitzero"`
	ModelID      string  `json:"model_id"`
	Status       string  `json:"status"`       // "feasible" or "infeasible"
	Verdict      string  `json:"verdict"`      // a Verdict…: how well it runs, or what stands in the way
	Input        string  `json:"input"`        // what the model was known by: "table", "profile", "config"
	Source       string  `json:"source"`       // what the quality numbers are: "measured", "prior", "synthetic"
	SpeedSource  string  `json:"speed_source"` // what the speeds are: "measured", "default"
	Budget       Budget  `json:"budget"`
	Axes         []Axis  `json:"axes"`                   // memory, bandwidth, latency, quality; disk where it is limited
	BindingAxis  string  `json:"binding_axis,omitempty"` // the failing axis that needs the largest relative change
	RelaxOptions []Relax `json:"relax_options"`
	// Joint is the cheapest change, of one flag or of several at once.
	Joint       *JointRelax `json:"joint_relaxation,omitempty"`
	Styles      []Style     `json:"styles"`              // the best plan of each way to hold the model
	Predicted   *Prediction `json:"predicted,omitempty"` // of the plan, where one exists
	Command     string      `json:"command,omitempty"`   // what to run next
	Annotations Annotations `json:"annotations,omitempty"`
}

// Words of a feasibility report.
const (
	StatusFeasible   = "feasible"
	StatusInfeasible = "infeasible"

	// Verdicts: at least 15, 8, 3 tokens per second at the low end of the
	// band, or fewer; not within this budget, or within none.
	VerdictFast       = "fast"
	VerdictGood       = "good"
	VerdictUsable     = "usable"
	VerdictSlow       = "slow"
	VerdictNotHere    = "not_in_this_budget"
	VerdictImpossible = "impossible"

	AxisMemory    = "memory"
	AxisBandwidth = "bandwidth"
	AxisLatency   = "latency"
	AxisQuality   = "quality"
	AxisDisk      = "disk" // where --max-disk is given

	InputTable   = "table"
	InputProfile = "profile"
	InputConfig  = "config"

	// Styles of residency.
	StyleStatic    = "static"               // every record resident
	StyleSkeletons = "slots_over_skeletons" // experts resident, upgrades of them in slots
	StyleStreamed  = "streamed_only"        // experts that are not resident pass through slots
)

// Axis is one constraint: Required is compared with Available, Slack is what
// is left (negative: what lacks).
type Axis struct {
	Axis      string  `json:"axis"`
	OK        bool    `json:"ok"`
	Unit      string  `json:"unit"` // "bytes", "bytes_per_sec", "ns_per_token", "nats_per_token"
	Required  float64 `json:"required"`
	Available float64 `json:"available"`
	Slack     float64 `json:"slack"`
	// Reason says in words what the number is of.
	Reason string `json:"reason,omitempty"`
}

// Change is a new value of one flag.
type Change struct {
	Axis  string  `json:"axis"`
	Flag  string  `json:"flag"` // "--max-ram"
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Relax is one smallest change of one flag that makes the budget feasible,
// all others as given.
type Relax struct {
	Axis  string  `json:"axis"`
	Flag  string  `json:"flag"` // "--max-ram"
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Cost is the absolute logarithm of the ratio of the new value to the old.
	Cost    float64 `json:"cost"`
	Command string  `json:"command"` // the flags to plan with
}

// JointRelax is the cheapest set of changes that was found to make the budget
// feasible together: the one with the least sum of costs.
type JointRelax struct {
	Changes []Change `json:"changes"`
	Cost    float64  `json:"cost"`
	Command string   `json:"command"`
}

// Style is the best plan of one way to hold the model.
type Style struct {
	Style             string  `json:"style"`
	OK                bool    `json:"ok"` // there is one
	KL                float64 `json:"kl,omitzero"`
	TokensPerSec      float64 `json:"tokens_per_second,omitzero"`
	TokensPerSecLow   float64 `json:"tokens_per_second_low,omitzero"`
	TokensPerSecHigh  float64 `json:"tokens_per_second_high,omitzero"`
	ReadBytesPerToken int64   `json:"read_bytes_per_token,omitzero"`
	Reason            string  `json:"reason,omitempty"` // why there is none, or where it ends
}

// Validate checks that the report is sound.
func (f *Feasibility) Validate() error {
	var c checker
	if f.Status != StatusFeasible && f.Status != StatusInfeasible {
		c.fail(at("status"), "%q: want %q or %q", f.Status, StatusFeasible, StatusInfeasible)
	}
	if !slices.Contains([]string{VerdictFast, VerdictGood, VerdictUsable, VerdictSlow, VerdictNotHere, VerdictImpossible}, f.Verdict) {
		c.fail(at("verdict"), "%q is not known here", f.Verdict)
	}
	if f.Input != InputTable && f.Input != InputProfile && f.Input != InputConfig {
		c.fail(at("input"), "%q is not known here", f.Input)
	}
	if err := f.Budget.Validate(); err != nil && c.err == nil {
		c.err = err
	}
	for i, a := range f.Axes {
		switch a.Axis {
		case AxisMemory, AxisBandwidth, AxisLatency, AxisQuality, AxisDisk:
		default:
			c.fail(at("axes", i, "axis"), "%q is not known here", a.Axis)
		}
		if !validNumber(a.Required, 0) || !validNumber(a.Available, 0) || !finite(a.Slack) {
			c.fail(at("axes", i), "axis %s: required %v, available %v, slack %v: want finite numbers", a.Axis, a.Required, a.Available, a.Slack)
		}
	}
	for i, r := range f.RelaxOptions {
		if !validNumber(r.Value, 0) || r.Flag == "" || !validNumber(r.Cost, 0) {
			c.fail(at("relax_options", i), "flag %q, value %v, cost %v: want a flag and finite numbers", r.Flag, r.Value, r.Cost)
		}
	}
	if j := f.Joint; j != nil {
		for i, r := range j.Changes {
			if !validNumber(r.Value, 0) || r.Flag == "" {
				c.fail(at("joint_relaxation", "changes", i), "flag %q, value %v: want a flag and a finite number", r.Flag, r.Value)
			}
		}
		if !validNumber(j.Cost, 0) || len(j.Changes) == 0 {
			c.fail(at("joint_relaxation"), "%d changes, cost %v: want at least one", len(j.Changes), j.Cost)
		}
	}
	for i, s := range f.Styles {
		if s.Style != StyleStatic && s.Style != StyleSkeletons && s.Style != StyleStreamed {
			c.fail(at("styles", i, "style"), "%q is not known here", s.Style)
		}
		if !validNumber(s.KL, 0) || !validNumber(s.TokensPerSec, 0) || !validInteger(s.ReadBytesPerToken, 0) {
			c.fail(at("styles", i), "style %s: KL %v, %v tokens per second, %d bytes: want finite numbers", s.Style, s.KL, s.TokensPerSec, s.ReadBytesPerToken)
		}
	}
	return c.err
}
