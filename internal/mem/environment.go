package mem

import (
	"fmt"
	"io/fs"
)

// Environment is what a machine and its cgroups leave to a process.
type Environment struct {
	Total     int64 // memory of the machine
	Available int64 // of it, free or to be had without swapping (MemAvailable)
	Cgroup    Cgroup
}

// Room is what the environment still has for this process to allocate, and
// what sets that bound.
func (e *Environment) Room() (bytes int64, by string) {
	if e.Cgroup.Room < e.Available {
		return e.Cgroup.Room, "the cgroup"
	}
	return e.Available, "the machine's available memory"
}

// Auto is the cap that --max-ram auto stands for: what the environment has
// left, plus what this process already holds of it, less a margin of 2 % for
// what the kernel itself needs for a process of that size (page tables take
// one 512th) and for others that breathe.
func (e *Environment) Auto(resident int64) int64 {
	room, _ := e.Room()
	room = min(room+resident, e.Cgroup.Limit)
	return room - room/50
}

// readMeminfo takes Total and Available from the text of /proc/meminfo.
func (e *Environment) readMeminfo(root fs.FS) error {
	text, err := readControlFile(root, "proc/meminfo")
	if err != nil {
		return err
	}
	var ok bool
	if e.Total, ok = kilobytes(text, "MemTotal:"); !ok {
		return fmt.Errorf("/proc/meminfo: no line MemTotal with a number of kB")
	}
	if e.Available, ok = kilobytes(text, "MemAvailable:"); !ok {
		return fmt.Errorf("/proc/meminfo: no line MemAvailable with a number of kB")
	}
	return nil
}
