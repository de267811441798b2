package run

import (
	"fmt"
	"math"

	"substrate/pkg/arch"
	"substrate/pkg/doc"
)

// A Verifier is a sensor of disagreement: how far an op's output is from what
// its top tier would give.
type Verifier interface {
	// Disagreement is asked once per op and token, right after the op ran. The
	// graph shows the residual stream; it is nil where no model runs. A value
	// that is not above the policy's threshold is none.
	Disagreement(op string, graph *arch.Graph) float64
	// Reset begins a new answer.
	Reset()
}

// NewVerifier makes the verifier that a document describes, for a model of a
// hidden size.
func NewVerifier(d *doc.Verifier, hiddenSize int) (Verifier, error) {
	if len(d.Script) > 0 {
		script := make(map[string][]float64, len(d.Script))
		for _, s := range d.Script {
			script[s.Op] = s.Disagreement
		}
		return NewScriptedVerifier(script), nil
	}
	if d.HiddenSize != hiddenSize {
		return nil, fmt.Errorf("the probes are for a hidden size of %d, the model has %d", d.HiddenSize, hiddenSize)
	}
	return NewLinearProbe(d.Probes), nil
}

// ScriptedVerifier replays disagreements: of each op named, one value per
// token, and none when they are used up. It serves tests and demonstrations.
type ScriptedVerifier struct {
	script, left map[string][]float64
}

// NewScriptedVerifier returns a verifier that replays a script. The script
// must not change afterwards.
func NewScriptedVerifier(script map[string][]float64) *ScriptedVerifier {
	v := &ScriptedVerifier{script: script, left: make(map[string][]float64, len(script))}
	v.Reset()
	return v
}

// Reset plays the script from its start.
func (v *ScriptedVerifier) Reset() {
	for op, values := range v.script {
		v.left[op] = values
	}
}

// Disagreement returns the op's next value.
func (v *ScriptedVerifier) Disagreement(op string, _ *arch.Graph) float64 {
	values := v.left[op]
	if len(values) == 0 {
		return 0
	}
	v.left[op] = values[1:]
	return values[0]
}

// LinearProbe predicts disagreement from the residual stream after an op, by
// linear functions that were fitted offline. An op without a probe never
// disagrees.
type LinearProbe struct {
	probes map[string]*probe
	hidden []float32
}

type probe struct {
	weights []float32
	bias    float64
}

// NewLinearProbe returns a verifier of probes, whose weights all have the
// model's hidden size.
func NewLinearProbe(probes []doc.LinearProbe) *LinearProbe {
	v := &LinearProbe{probes: make(map[string]*probe, len(probes))}
	for i := range probes {
		p := &probe{weights: make([]float32, len(probes[i].Weights)), bias: probes[i].Bias}
		for j, w := range probes[i].Weights {
			p.weights[j] = float32(w)
		}
		v.hidden = make([]float32, len(p.weights))
		v.probes[probes[i].Op] = p
	}
	return v
}

// Reset does nothing: a probe has no memory.
func (v *LinearProbe) Reset() {}

// Disagreement is the probe's prediction of the last row of the residual
// stream, which it reads back from the device; where that fails the run ends
// at its next call.
func (v *LinearProbe) Disagreement(op string, graph *arch.Graph) float64 {
	p := v.probes[op]
	if p == nil || graph == nil || graph.LastHidden(v.hidden) != nil {
		return 0
	}
	return p.predict(v.hidden)
}

// predict is max(0, bias + weights·h / rms(h)).
func (p *probe) predict(h []float32) float64 {
	var dot, squares float64
	for i, w := range p.weights {
		x := float64(h[i])
		dot += float64(w) * x
		squares += x * x
	}
	if squares == 0 {
		return max(0, p.bias)
	}
	return max(0, p.bias+dot/math.Sqrt(squares/float64(len(h))))
}
