package ref

import (
	"testing"

	"substrate/pkg/backend"
	"substrate/pkg/backend/backendtest"
)

func TestConformance(t *testing.T) {
	for _, threads := range []int{1, 3} {
		backendtest.Run(t, backendtest.Config{
			Open:     func() (backend.Backend, error) { return Open(threads), nil },
			Rounding: 0x1p-23,
		})
	}
}
