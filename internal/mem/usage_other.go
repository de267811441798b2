//go:build !linux && !darwin

package mem

import (
	"fmt"
	"runtime"
)

// Meter measures this process; not on this system.
type Meter struct{}

// NewMeter reports that the system is not supported: a cap that nobody can
// measure is no cap.
func NewMeter() (*Meter, error) {
	return nil, fmt.Errorf("measuring a process's memory is not supported on %s", runtime.GOOS)
}

// Read always fails.
func (m *Meter) Read() (Usage, error) { return Usage{}, fmt.Errorf("no meter") }

// Close closes the meter.
func (m *Meter) Close() error { return nil }
