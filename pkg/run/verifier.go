package run

import "substrate/pkg/arch"

// A Verifier is a sensor of disagreement: how far an op's output is from what
// its top tier would give.
type Verifier interface {
	// Disagreement is asked once per op and token, right after the op ran. The
	// graph shows the residual stream; it is nil where no model runs. A value
	// that is not above the policy's threshold is none.
	Disagreement(op string, graph *arch.Graph) float64
}

// ScriptedVerifier replays disagreements: of each op named, one value per
// token, and none when they are used up. It serves tests and demonstrations.
type ScriptedVerifier struct {
	script map[string][]float64
}

// NewScriptedVerifier returns a verifier that replays a script. The script
// must not change afterwards.
func NewScriptedVerifier(script map[string][]float64) *ScriptedVerifier {
	v := &ScriptedVerifier{script: make(map[string][]float64, len(script))}
	for op, values := range script {
		v.script[op] = values
	}
	return v
}

// Disagreement returns the op's next value.
func (v *ScriptedVerifier) Disagreement(op string, _ *arch.Graph) float64 {
	values := v.script[op]
	if len(values) == 0 {
		return 0
	}
	v.script[op] = values[1:]
	return values[0]
}
