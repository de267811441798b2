package doc

// Feasibility is the report of sb-feasible: whether a model runs within a
// budget, on which axis it fails, and the smallest changes that help.
type Feasibility struct {
	Format       string      `json:"format"`
	Synthetic    bool        `json:"synthetic,omitzero"`
	ModelID      string      `json:"model_id"`
	Status       string      `json:"status"` // "feasible" or "infeasible"
	Source       string      `json:"source"` // what the quality numbers are: "measured", "prior", "synthetic"
	Budget       Budget      `json:"budget"`
	Axes         []Axis      `json:"axes"`                   // memory, bandwidth, latency, quality
	BindingAxis  string      `json:"binding_axis,omitempty"` // the failing axis that needs the largest relative change
	RelaxOptions []Relax     `json:"relax_options"`
	Predicted    *Prediction `json:"predicted,omitempty"` // of the plan, where one exists
	Command      string      `json:"command,omitempty"`   // what to run next
	Annotations  Annotations `json:"annotations,omitempty"`
}

// Words of a feasibility report.
const (
	StatusFeasible   = "feasible"
	StatusInfeasible = "infeasible"

	AxisMemory    = "memory"
	AxisBandwidth = "bandwidth"
	AxisLatency   = "latency"
	AxisQuality   = "quality"
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

// Relax is one smallest change of one flag that makes the budget feasible,
// all others as given.
type Relax struct {
	Axis    string  `json:"axis"`
	Flag    string  `json:"flag"` // "--max-ram"
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Command string  `json:"command"` // the flags to plan with
}
