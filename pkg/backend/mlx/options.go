// Package mlx is the backend on MLX: the default on Apple silicon, where its
// kernels run on the GPU; elsewhere its kernels are scalar, for parity and not
// for speed.
//
// This half checks arguments and calls a shim, a shared library in C++ (folder
// shim) that is compiled against the MLX it will load. It is opened when a
// backend is, so that programs start without it.
//
// Activations, sums and everything between ops are float32. MLX picks its
// kernels by shape, so a row's output may have other bits alone than in a
// batch, and results depend on the version of MLX (Path) and the machine.
//
// Rows of a register beyond those that the last op wrote cannot be read.
package mlx

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// LibraryVariable is the environment variable that names the shim.
const LibraryVariable = "SB_MLX_LIB"

// Options configure a backend. The zero value is the default.
type Options struct {
	// Library is the file of the shim; "": what the environment variable
	// SB_MLX_LIB names, else ../lib beside the program.
	Library string
}

// library finds the shim.
func (o *Options) library() (string, error) {
	if o.Library != "" {
		return o.Library, nil
	}
	if path := os.Getenv(LibraryVariable); path != "" {
		return path, nil
	}
	name := "libsbmlx.so"
	if runtime.GOOS == "darwin" {
		name = "libsbmlx.dylib"
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("where this program lies: %w", err)
	}
	folders := []string{filepath.Dir(program)}
	// An installed program may be a link.
	if real, err := filepath.EvalSymlinks(program); err == nil && real != program {
		folders = append(folders, filepath.Dir(real))
	}
	var tried []string
	for _, folder := range folders {
		path := filepath.Join(filepath.Dir(folder), "lib", name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		tried = append(tried, path)
	}
	return "", fmt.Errorf("there is no %s", strings.Join(tried, " and no "))
}
