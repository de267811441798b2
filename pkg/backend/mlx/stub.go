//go:build !cgo

package mlx

import (
	"errors"

	"substrate/pkg/backend"
)

// Remedy is what to do when Open fails.
const Remedy = "build this program with CGO_ENABLED=1 and a C compiler"

// Open fails: this program was built without C.
func Open(Options) (backend.Backend, error) {
	return nil, errors.New("this program was built with CGO_ENABLED=0 and cannot load MLX")
}
