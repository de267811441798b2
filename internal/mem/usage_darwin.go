package mem

import (
	"fmt"
	"os"
	"runtime/metrics"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Meter measures this process. It is not for concurrent use.
type Meter struct {
	heap [1]metrics.Sample
}

// NewMeter opens a meter.
func NewMeter() (*Meter, error) {
	return &Meter{heap: [1]metrics.Sample{{Name: heapMetric}}}, nil
}

// Arguments of the system call proc_info behind libproc's proc_pid_rusage,
// from <sys/proc_info.h> and <sys/resource.h>.
const (
	callPidRusage = 9
	rusageInfoV4  = 4
)

// rusageV4 is struct rusage_info_v4: a uuid, then 64-bit counters.
type rusageV4 struct {
	uuid     [16]byte
	counters [35]uint64
}

// Places in rusageV4.counters.
const (
	physFootprint        = 7
	lifetimeMaxFootprint = 28
)

// Read takes a sample. phys_footprint is what the system itself judges a
// process by; it counts Metal's buffers, which resident sizes do not.
func (m *Meter) Read() (Usage, error) {
	var r rusageV4
	_, _, errno := unix.Syscall6(unix.SYS_PROC_INFO, callPidRusage, uintptr(os.Getpid()), rusageInfoV4, 0, uintptr(unsafe.Pointer(&r)), unsafe.Sizeof(r))
	if errno != 0 {
		return Usage{}, fmt.Errorf("measure this process's memory: proc_pid_rusage: %w", errno)
	}
	metrics.Read(m.heap[:])
	u := Usage{
		Resident: int64(r.counters[physFootprint]), Peak: int64(r.counters[lifetimeMaxFootprint]), Heap: int64(m.heap[0].Value.Uint64()),
	}
	if u.Resident <= 0 || u.Peak < u.Resident {
		return Usage{}, fmt.Errorf("measure this process's memory: proc_pid_rusage gives a footprint of %d and a peak of %d", u.Resident, u.Peak)
	}
	return u, nil
}

// Close closes the meter.
func (m *Meter) Close() error { return nil }
