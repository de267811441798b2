package store

import (
	"cmp"
	"slices"
)

// Part is something that one store has and another one has not.
type Part struct {
	Second bool   // the second store has it, not the first
	Kind   string // "record", "plan" or "text"
	Name   string // id of the record, name of the plan, file
	Detail string // encoding of the record, else the start of its digest
	Bytes  int64  // in its file
}

// Diff tells how two stores differ.
type Diff struct {
	Parts       []Part // by kind and name, of the first store first
	Common      int    // records that both have, byte for byte
	CommonBytes int64
}

// Compare compares two stores by what their manifests say: it reads no record.
func Compare(first, second *Store) *Diff {
	d := new(Diff)
	a, b := first.parts(), second.parts()
	for key, p := range a {
		switch _, ok := b[key]; {
		case !ok:
			d.Parts = append(d.Parts, p)
		case p.Kind == kindRecord:
			d.Common++
			d.CommonBytes += p.Bytes
		}
	}
	for key, p := range b {
		if _, ok := a[key]; !ok {
			p.Second = true
			d.Parts = append(d.Parts, p)
		}
	}
	slices.SortFunc(d.Parts, func(a, b Part) int {
		second := func(p Part) int {
			if p.Second {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), second(a)-second(b), cmp.Compare(a.Detail, b.Detail))
	})
	return d
}

const (
	kindRecord = "record"
	kindPlan   = "plan"
	kindText   = "text"
)

// partKey is what makes two parts equal. Records have no name here: plans may
// call one by different ids.
type partKey struct {
	kind, name string
	identity   string // of a record, else the sha256
	crc32c     uint32
}

func (s *Store) parts() map[partKey]Part {
	m := s.manifest
	parts := make(map[partKey]Part, len(m.Records))
	known := make(map[string]bool, len(m.Files)) // files of plans and records
	for i := range m.Plans {
		known[m.Plans[i].File] = true
		parts[partKey{kind: kindPlan, name: m.Plans[i].Name, identity: m.Plans[i].SHA256}] = Part{
			Kind: kindPlan, Name: m.Plans[i].Name, Detail: short(m.Plans[i].SHA256),
		}
	}
	for i := range m.Records {
		r := &m.Records[i]
		known[m.Files[r.File].File] = true
		parts[partKey{kindRecord, "", r.Identity, r.CRC32C}] = Part{Kind: kindRecord, Name: r.ID, Detail: r.Encoding, Bytes: r.Bytes}
	}
	for i := range m.Files {
		f := &m.Files[i]
		if !known[f.File] {
			parts[partKey{kind: kindText, name: f.File, identity: f.SHA256}] = Part{Kind: kindText, Name: f.File, Detail: short(f.SHA256), Bytes: f.Bytes}
		}
	}
	return parts
}
