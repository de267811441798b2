//go:build !linux

package clitest

import (
	"errors"
	"os"
)

func openPTY() (control, terminal *os.File, err error) {
	return nil, nil, errors.ErrUnsupported
}
