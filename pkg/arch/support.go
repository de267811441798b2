package arch

import (
	"fmt"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// An UnsupportedError says that a backend lacks what an architecture needs.
type UnsupportedError struct {
	Backend string
	Feature backend.Feature
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("backend %s does not support %s yet, which this family needs", e.Backend, e.Feature)
}

// Hint is the remedy.
func (e *UnsupportedError) Hint() string {
	return "--backend cpu and --backend ref support every family"
}

// ExitCode is that of a "no".
func (e *UnsupportedError) ExitCode() int { return 1 }

// supported refuses an architecture that a backend cannot compute.
func supported(b backend.Backend, a *doc.Architecture) error {
	p, ok := b.(backend.Partial)
	if !ok {
		return nil
	}
	for _, need := range []struct {
		feature backend.Feature
		needed  bool
	}{
		{backend.Sinks, a.AttentionSinks},
		{backend.Latents, a.Latent != nil},
		{backend.ClampedGLU, a.SwiGLULimit > 0},
	} {
		if need.needed && p.Lacks(need.feature) {
			return &UnsupportedError{Backend: b.Name(), Feature: need.feature}
		}
	}
	return nil
}
