//go:build cgo

package mlx

import (
	"os"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/backend/backendtest"
)

// available skips the test unless the shim was built; where the environment
// names it, it must load.
func available(t testing.TB) {
	t.Helper()
	b, err := Open(Options{})
	if err == nil {
		b.Close()
		return
	}
	if os.Getenv(LibraryVariable) != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func start(t testing.TB) *Backend {
	t.Helper()
	available(t)
	b, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.(*Backend)
}

func TestConformance(t *testing.T) {
	available(t)
	backendtest.Run(t, backendtest.Config{
		Open:     func() (backend.Backend, error) { return Open(Options{}) },
		Rounding: 0x1p-20,
	})
}
