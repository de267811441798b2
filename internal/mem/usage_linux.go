package mem

import (
	"fmt"
	"io"
	"os"
	"runtime/metrics"
)

// Meter measures this process. It keeps its files open and allocates nothing
// per sample. It is not for concurrent use.
type Meter struct {
	status   *os.File
	pressure *os.File // nil where the kernel does not tell
	before   int64    // pressure when the meter was opened
	buf      [4096]byte
	heap     [1]metrics.Sample
}

// NewMeter opens a meter.
func NewMeter() (*Meter, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("measure this process's memory: %w", err)
	}
	m := &Meter{status: f, heap: [1]metrics.Sample{{Name: heapMetric}}}
	if m.pressure, err = os.Open("/proc/pressure/memory"); err != nil {
		m.pressure = nil // built without, or switched off
	}
	m.before = m.stalled()
	return m, nil
}

// stalled reads the total of pressure, 0 if there is none.
func (m *Meter) stalled() int64 {
	if m.pressure == nil {
		return 0
	}
	n, err := m.pressure.ReadAt(m.buf[:], 0)
	if n == 0 || err != nil && err != io.EOF {
		return 0
	}
	return parsePressure(m.buf[:n])
}

// Read takes a sample.
func (m *Meter) Read() (Usage, error) {
	n, err := m.status.ReadAt(m.buf[:], 0)
	if n == 0 {
		return Usage{}, fmt.Errorf("measure this process's memory: %w", err)
	}
	u, err := parseStatus(m.buf[:n])
	metrics.Read(m.heap[:])
	u.Heap = int64(m.heap[0].Value.Uint64())
	u.Pressure = max(0, m.stalled()-m.before)
	return u, err
}

// Close closes the meter.
func (m *Meter) Close() error {
	if m.pressure != nil {
		m.pressure.Close()
	}
	return m.status.Close()
}
