//go:build !cgo

package cpu

import (
	"strings"
	"testing"
)

func TestOpenWithoutC(t *testing.T) {
	if _, err := Open(Options{}); err == nil || !strings.Contains(err.Error(), "--backend ref") {
		t.Errorf("got %v, want an error that names the way out", err)
	}
}
