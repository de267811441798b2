package calib

import (
	"os"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/backend/mlx"
	"substrate/pkg/model"
)

// openMLX skips a test where the backend is not there; where the environment
// names its library, it must be.
func openMLX(t *testing.T) backend.Backend {
	t.Helper()
	b, err := mlx.Open(mlx.Options{})
	if err != nil {
		if os.Getenv(mlx.LibraryVariable) != "" {
			t.Fatal(err)
		}
		t.Skipf("%v: %s", err, mlx.Remedy)
	}
	return b
}

// TestMLXLogitsEqualTransformers: the same goldens and the same tolerance as
// for the reference backend.
func TestMLXLogitsEqualTransformers(t *testing.T) {
	eachGolden(t, func(t *testing.T, dir string, g *golden, m *model.Model) {
		testLogits(t, dir, g, m, openMLX(t))
	})
}
