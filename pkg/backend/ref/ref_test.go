package ref

import (
	"fmt"
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/backend/backendtest"
)

func config(threads int) backendtest.Config {
	return backendtest.Config{
		Open:     func() (backend.Backend, error) { return Open(threads), nil },
		Rounding: 0x1p-23,
	}
}

func TestConformance(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) { backendtest.Run(t, config(threads)) })
	}
}

func FuzzProducts(f *testing.F)  { backendtest.FuzzProducts(f, config(1)) }
func FuzzAttention(f *testing.F) { backendtest.FuzzAttention(f, config(1)) }
func FuzzExperts(f *testing.F)   { backendtest.FuzzExperts(f, config(1)) }

// After Close every op does nothing, and says so.
func TestClosed(t *testing.T) {
	b := Open(1)
	x, err := b.Tensor(1, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.Add(x, x)
	if b.Sync() == nil {
		t.Error("an op on a closed backend left no error")
	}
}
