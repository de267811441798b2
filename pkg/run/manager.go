package run

import (
	"fmt"

	"substrate/pkg/doc"
)

// lines of the ledger that records live in.
const (
	inWeights = iota
	inSlots
	inRing
	inPool
	heldLines
)

var heldNames = [heldLines]string{doc.LedgerWeights, doc.LedgerSlots, doc.LedgerRing, doc.LedgerPool}

// A ResidencyManager knows of every record whether it has a place in memory,
// and keeps the account of each line of the ledger. Places are given by Hold
// and taken back by Evict, explicitly: nothing leaves by itself. What would not
// fit its line is a defect of the run, and never happens silently.
type ResidencyManager struct {
	records []record
	in      []uint8 // by record: a bit for each line that it is in
	limit   [heldLines]int64
	used    [heldLines]int64
}

func newResidencyManager(records []record, limit [heldLines]int64) *ResidencyManager {
	return &ResidencyManager{records: records, in: make([]uint8, len(records)), limit: limit}
}

// Hold notes that a record takes its place in a line, perhaps still being read.
func (m *ResidencyManager) Hold(record int32, line uint8) error {
	r := &m.records[record]
	if m.in[record]&(1<<line) != 0 {
		return fmt.Errorf("internal error: record %s has a place in %s and gets another", r.id, heldNames[line])
	}
	if m.used[line]+r.bytes > m.limit[line] {
		return fmt.Errorf("internal error: record %s of %d bytes does not fit %s: %d of %d are in use", r.id, r.bytes, heldNames[line], m.used[line], m.limit[line])
	}
	m.in[record] |= 1 << line
	m.used[line] += r.bytes
	return nil
}

// Evict notes that a record's place in a line is free from now on.
func (m *ResidencyManager) Evict(record int32, line uint8) {
	if m.in[record]&(1<<line) != 0 {
		m.used[line] -= m.records[record].bytes
		m.in[record] &^= 1 << line
	}
}

// Present reports whether a record has a place in memory.
func (m *ResidencyManager) Present(record int32) bool { return m.in[record] != 0 }

// Used is how many bytes the records of a ledger line take.
func (m *ResidencyManager) Used(line string) int64 {
	for i, name := range heldNames {
		if name == line {
			return m.used[i]
		}
	}
	return 0
}
