package mem

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ReadEnvironment looks around. macOS has no cgroups; what it will compress or
// swap before it fails is not counted as available.
func ReadEnvironment(fs.FS) (Environment, error) {
	e := Environment{Cgroup: Cgroup{Limit: NoLimit, Room: NoLimit}}
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return e, fmt.Errorf("sysctl hw.memsize: %w", err)
	}
	// The share of memory that the system has free, in percent, as the tool
	// memory_pressure prints it.
	level, err := unix.SysctlUint32("kern.memorystatus_level")
	if err != nil {
		return e, fmt.Errorf("sysctl kern.memorystatus_level: %w", err)
	}
	e.Total = int64(total)
	e.Available = e.Total / 100 * int64(min(level, 100))
	return e, nil
}
