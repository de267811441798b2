package store

import (
	"errors"
	"fmt"
	"io"
	"unique"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// readManifest reads a manifest value by value: the text of one with many
// thousand records is several times the size of what it says, and sb-run pays
// for every byte it holds. It accepts what doc.Read does.
func readManifest(name string, r io.Reader) (*doc.Manifest, error) {
	m := new(doc.Manifest)
	rd := jsonio.NewReader(name, r)
	seen := map[string]bool{}
	err := rd.Object(func(b []byte) error {
		member := string(b)
		if seen[member] {
			return rd.Errorf("member %q occurs twice", member)
		}
		seen[member] = true
		switch member {
		case "format":
			if err := readMember(name, rd, "", member, m); err != nil {
				return err
			}
			return doc.CheckFormat(m.Format, doc.FormatStore)
		case "profile":
			return readProfile(name, rd, &m.Profile)
		case "layouts":
			return readArray(name, rd, "/layouts", &m.Layouts, shareLayout)
		case "files":
			return readArray(name, rd, "/files", &m.Files, nil)
		case "records":
			return readArray(name, rd, "/records", &m.Records, shareRecord)
		}
		return readMember(name, rd, "", member, m)
	})
	if err == nil {
		err = rd.End()
	}
	if err == nil {
		err = doc.CheckFormat(m.Format, doc.FormatStore) // it may be missing
	}
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		return nil, jsonio.Name(name, err)
	}
	return m, nil
}

func readProfile(name string, rd *jsonio.Reader, p *doc.Profile) error {
	seen := map[string]bool{}
	return rd.Object(func(b []byte) error {
		member := string(b)
		if seen[member] {
			return rd.Errorf("member %q occurs twice", member)
		}
		seen[member] = true
		if member == "ops" {
			return readArray(name, rd, "/profile/ops", &p.Ops, shareOp)
		}
		return readMember(name, rd, "/profile", member, p)
	})
}

// readMember reads the value of one member of the document v.
func readMember(name string, rd *jsonio.Reader, at jsonio.Pointer, member string, v any) error {
	value, err := rd.Value()
	if err != nil {
		return err
	}
	text, err := jsonio.AppendString([]byte("{"), []byte(member))
	if err != nil {
		return err
	}
	text = append(append(append(text, ':'), value...), '}')
	return within(name, at, jsonio.Unmarshal(name, text, v))
}

// readArray reads an array element by element.
func readArray[T any](name string, rd *jsonio.Reader, at jsonio.Pointer, to *[]T, share func(*T)) error {
	*to = []T{}
	return rd.Array(func() error {
		value, err := rd.Value()
		if err != nil {
			return err
		}
		var v T
		if err := jsonio.Unmarshal(name, value, &v); err != nil {
			return within(name, at.AppendToken(fmt.Sprint(len(*to))), err)
		}
		if share != nil {
			share(&v)
		}
		*to = append(*to, v)
		return nil
	})
}

// within puts an error about a part at its place in the manifest.
func within(name string, at jsonio.Pointer, err error) error {
	if err == nil {
		return nil
	}
	var e *jsonio.Error
	if errors.As(err, &e) {
		e.Offset = 0
	}
	return jsonio.Within(name, at, err)
}

// shared returns the one copy of a string that occurs many times.
func shared(s string) string { return unique.Make(s).Value() }

func shareOp(o *doc.Op) {
	o.ID, o.Shares, o.Kind = shared(o.ID), shared(o.Shares), doc.Kind(shared(string(o.Kind)))
	for i := range o.Tensors {
		t := &o.Tensors[i]
		t.Role, t.DType, t.Source.Permute = shared(t.Role), shared(t.DType), shared(t.Source.Permute)
		if t.Source.Index >= 0 { // one of many of this name
			t.Source.Name = shared(t.Source.Name)
		}
	}
}

func shareLayout(l *doc.RecordLayout) {
	for i := range l.Tensors {
		t := &l.Tensors[i]
		t.Role, t.DType, t.Scale = shared(t.Role), shared(t.DType), shared(t.Scale)
	}
}

func shareRecord(r *doc.Record) {
	r.Op, r.Encoding = shared(r.Op), shared(r.Encoding)
}
