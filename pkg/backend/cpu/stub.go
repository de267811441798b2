//go:build !cgo

package cpu

import (
	"errors"

	"substrate/pkg/backend"
)

// Open fails: this program was built without C.
func Open(o Options) (backend.Backend, error) {
	return nil, errors.New("backend cpu: this program was built with CGO_ENABLED=0 and has no C kernels; use --backend ref")
}
