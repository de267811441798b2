package mem

import (
	"fmt"
	"os"
	"runtime/metrics"
)

// Meter measures this process. It keeps its file open and allocates nothing
// per sample. It is not for concurrent use.
type Meter struct {
	status *os.File
	buf    [4096]byte
	heap   [1]metrics.Sample
}

// NewMeter opens a meter.
func NewMeter() (*Meter, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("measure this process's memory: %w", err)
	}
	return &Meter{status: f, heap: [1]metrics.Sample{{Name: heapMetric}}}, nil
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
	return u, err
}

// Close closes the meter.
func (m *Meter) Close() error { return m.status.Close() }
