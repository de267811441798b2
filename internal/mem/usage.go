package mem

import (
	"bytes"
	"fmt"
)

// Usage is the memory of this process, in bytes.
type Usage struct {
	Resident  int64 // VmRSS; phys_footprint on macOS
	Anonymous int64 // RssAnon: heap, buffers, stacks; without mapped files. 0 where the system does not tell
	Peak      int64 // VmHWM, the largest Resident so far; lifetime maximum of phys_footprint on macOS
	Heap      int64 // of it, live and dead objects on the Go heap

	// Swapped is what of the process is swapped out, Pressure how long in ns
	// processes of this machine have waited for memory since the meter was
	// opened (pressure stall information, "some"): signs of a machine that
	// cannot keep what was promised. 0 where the system does not tell.
	Swapped, Pressure int64
}

// heapMetric is the metric of Usage.Heap.
const heapMetric = "/memory/classes/heap/objects:bytes"

// parseStatus reads the text of /proc/self/status.
func parseStatus(text []byte) (Usage, error) {
	resident, ok1 := kilobytes(text, "VmRSS:")
	anonymous, ok2 := kilobytes(text, "RssAnon:")
	peak, ok3 := kilobytes(text, "VmHWM:")
	if !ok1 || !ok2 || !ok3 {
		return Usage{}, fmt.Errorf("/proc/self/status: no numbers of kB for VmRSS, RssAnon and VmHWM")
	}
	swapped, _ := kilobytes(text, "VmSwap:") // kernels without swap have no such line
	return Usage{Resident: resident, Anonymous: anonymous, Peak: peak, Swapped: swapped}, nil
}

// parsePressure finds the total of the line "some" in the text of
// /proc/pressure/memory, in ns; 0 if it is not there.
func parsePressure(text []byte) int64 {
	const name = "total="
	if len(text) < 5 || string(text[:5]) != "some " {
		return 0
	}
	if end := bytes.IndexByte(text, '\n'); end >= 0 {
		text = text[:end]
	}
	at := bytes.Index(text, []byte(name))
	if at < 0 {
		return 0
	}
	var us int64
	for _, c := range text[at+len(name):] {
		if c < '0' || c > '9' || us > 1e15 {
			return 0
		}
		us = us*10 + int64(c-'0')
	}
	return us * 1000
}

// kilobytes finds the line that starts with name and returns its number of
// kB, in bytes. It does not allocate: samples are taken between tokens.
func kilobytes(text []byte, name string) (int64, bool) {
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		if len(line) < len(name) || string(line[:len(name)]) != name {
			continue
		}
		var n int64
		digits := 0
		for _, c := range line[len(name):] {
			switch {
			case c >= '0' && c <= '9' && digits < 15:
				n = n*10 + int64(c-'0')
				digits++
			case digits > 0 || c != ' ' && c != '\t':
				return n << 10, digits > 0 && c == ' '
			}
		}
		return 0, false
	}
	return 0, false
}
