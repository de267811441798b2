// Package mem is the memory of a process under a hard cap: buffers outside the
// Go heap that are counted by purpose, what the process really uses, and what
// its environment allows it.
//
// Nothing here enforces a cap by reacting to pressure. A run adds up what it
// will need before it allocates, refuses if that does not fit, allocates
// everything at once and measures in the end.
package mem

import (
	"fmt"
	"sort"
	"sync"

	"substrate/pkg/doc"
)

// An Arena hands out buffers outside the Go heap and counts them, and memory
// that others hold, by purpose. The purposes are the names of ledger lines.
type Arena struct {
	mu    sync.Mutex
	bytes map[string]int64
	maps  [][]byte
}

// NewArena returns an empty arena.
func NewArena() *Arena { return &Arena{bytes: make(map[string]int64)} }

// Alloc returns a zeroed buffer of n bytes that starts at a multiple of
// MapAlign and whose pages are present. It lives until Close.
func (a *Arena) Alloc(purpose string, n int64) ([]byte, error) {
	buf, err := Map(n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", purpose, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.maps = append(a.maps, buf)
	a.bytes[purpose] += n
	return buf, nil
}

// Count notes memory that somebody else holds for a purpose; n < 0 gives it
// back.
func (a *Arena) Count(purpose string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes[purpose] += n
}

// Lines lists the bytes of every purpose, sorted by name.
func (a *Arena) Lines() []doc.LedgerLine {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := make([]doc.LedgerLine, 0, len(a.bytes))
	for name, n := range a.bytes {
		lines = append(lines, doc.LedgerLine{Name: name, Bytes: n})
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i].Name < lines[j].Name })
	return lines
}

// Close frees every buffer of Alloc. Nobody may use one afterwards.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first error
	for _, buf := range a.maps {
		if err := Unmap(buf); err != nil && first == nil {
			first = err
		}
	}
	a.maps = nil
	clear(a.bytes)
	return first
}
