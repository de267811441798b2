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
	return Usage{Resident: resident, Anonymous: anonymous, Peak: peak}, nil
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
