package backend

import "math"

// Activation joins gate and up. The zero one is SwiGLU, silu(gate) * up. With
// a Limit it is that of gpt-oss: g*sigmoid(Alpha*g) * (u+1), where g is gate
// but at most Limit, and u is up within -Limit and Limit.
type Activation struct{ Alpha, Limit float32 }

// Apply computes it for one gate and its up, rounded once.
func (a Activation) Apply(gate, up float32) float32 {
	g, u := float64(gate), float64(up)
	if a.Limit == 0 {
		return float32(g / (1 + math.Exp(-g)) * u)
	}
	limit := float64(a.Limit)
	g, u = min(g, limit), max(-limit, min(u, limit))
	return float32(g / (1 + math.Exp(-float64(a.Alpha)*g)) * (u + 1))
}
