//go:build !linux && !darwin

package mem

import (
	"fmt"
	"io/fs"
	"runtime"
)

// ReadEnvironment reports that the system is not supported.
func ReadEnvironment(fs.FS) (Environment, error) {
	return Environment{}, fmt.Errorf("asking for available memory is not supported on %s", runtime.GOOS)
}
