package doc

// Verifier is what tells a run how much its ops disagree with their top tiers:
// linear probes that were fitted offline, or a script for demonstrations and
// tests. --verifier of sb-run reads it.
type Verifier struct {
	Format  string `json:"format"`
	ModelID string `json:"model_id,omitempty"` // that the probes were fitted on
	// HiddenSize is that of the model whose residual stream the probes see; 0
	// without probes.
	HiddenSize int           `json:"hidden_size,omitzero"`
	Probes     []LinearProbe `json:"probes,omitempty"`
	Script     []OpScript    `json:"script,omitempty"`
}

// LinearProbe predicts an op's disagreement from the residual stream h after
// the op: max(0, bias + weights·h / rms(h)).
type LinearProbe struct {
	Op      string    `json:"op"`
	Weights []float64 `json:"weights"` // hidden_size of them
	Bias    float64   `json:"bias"`
}

// OpScript is the disagreements of one op, one per token of the answer after
// the first.
type OpScript struct {
	Op           string    `json:"op"`
	Disagreement []float64 `json:"disagreement"`
}

// Ops lists the ops that it watches.
func (v *Verifier) Ops() []string {
	ops := make([]string, 0, len(v.Probes)+len(v.Script))
	for i := range v.Probes {
		ops = append(ops, v.Probes[i].Op)
	}
	for i := range v.Script {
		ops = append(ops, v.Script[i].Op)
	}
	return ops
}

func (v *Verifier) formats() (string, string) { return v.Format, FormatVerifier }

// Validate checks that the numbers are sound and every op is named once.
func (v *Verifier) Validate() error {
	var c checker
	if v.HiddenSize < 0 || v.HiddenSize > MaxDimension {
		c.fail(at("hidden_size"), "%d: want 0 to %d", v.HiddenSize, MaxDimension)
	}
	if (len(v.Probes) == 0) == (len(v.Script) == 0) {
		c.fail(at("probes"), "%d probes and a script of %d ops: want either", len(v.Probes), len(v.Script))
	}
	ops := make(map[string]bool)
	once := func(place string, i int, op string) {
		if op == "" || ops[op] {
			c.fail(at(place, i, "op"), "op %q is empty or occurs twice", op)
		}
		ops[op] = true
	}
	for i := range v.Probes {
		p := &v.Probes[i]
		once("probes", i, p.Op)
		if len(p.Weights) != v.HiddenSize {
			c.fail(at("probes", i, "weights"), "%d weights, hidden_size is %d", len(p.Weights), v.HiddenSize)
		}
		for j, w := range p.Weights {
			if !finite(w) {
				c.fail(at("probes", i, "weights", j), "%v: want a finite number", w)
			}
		}
		if !finite(p.Bias) {
			c.fail(at("probes", i, "bias"), "%v: want a finite number", p.Bias)
		}
	}
	for i := range v.Script {
		s := &v.Script[i]
		once("script", i, s.Op)
		for j, d := range s.Disagreement {
			if !validNumber(d, 0) {
				c.fail(at("script", i, "disagreement", j), "%v: want a finite number, not negative", d)
			}
		}
	}
	return c.err
}
