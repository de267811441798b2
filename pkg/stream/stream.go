// Package stream reads records from files into buffers that the caller owns:
// a pool of workers takes requests in the order of class and deadline, reads
// past the page cache where the file system can, goes on after short reads and
// checks every record's CRC before it hands the buffer over. Reads that nobody
// waits for are admitted by the bandwidth that the others leave, see window.
//
// It is the original's PrefetchScheduler: earliest deadline first within a
// class, and sliding-window bandwidth admission.
//
// Nothing is allocated per read. A request is made once, beside the buffer it
// fills, and used again and again.
package stream

import (
	"fmt"
	"time"
)

// Class orders reads before their deadlines do.
type Class uint8

// Classes of reads, the most urgent first.
const (
	Demand    Class = iota // somebody waits for it
	Prefetch               // an op that is certain to run will need it
	Promotion              // an upgrade on its way into a slot or the pool
	LookAhead              // wanted later, perhaps
	Load                   // the filling of resident records before the first token
	classes
)

// String is the class's name in traces.
func (c Class) String() string {
	return [classes]string{"demand", "prefetch", "promotion", "look_ahead", "load"}[c]
}

// File is what the workers read: a file of a store, or a test's fault
// injector.
type File interface {
	// ReadAt reads once, as pread(2): it may return less than asked without
	// an error. At the end of the file it returns io.EOF, or 0 bytes.
	ReadAt(p []byte, offset int64) (int, error)
	// Align is the multiple in bytes that offsets, lengths and addresses of
	// reads must be, a power of two; 1 if any will do.
	Align() int
	Name() string
}

// Clock tells the time since a run's start. Trace lines and reads share one.
type Clock interface {
	Now() time.Duration
}

// StartClock returns the monotonic clock of a run that starts now.
func StartClock() Clock { return runClock{time.Now()} }

type runClock struct{ start time.Time }

func (c runClock) Now() time.Duration { return time.Since(c.start) }

// A CorruptError reports a record whose bytes are not those that were packed.
type CorruptError struct {
	File   string
	Offset int64
	Bytes  int
	Want   uint32 // CRC32C in the manifest
	Got    uint32
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s:%d: %d bytes are corrupt: CRC32C is %08x, should be %08x", e.File, e.Offset, e.Bytes, e.Got, e.Want)
}

// ExitCode is that of corruption.
func (e *CorruptError) ExitCode() int { return 4 }
