package doc_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"substrate/pkg/doc"
)

func readAs[T any, P interface {
	*T
	doc.Document
}](name string, b []byte) (doc.Document, error) {
	d, err := doc.Read[T, P](name, b)
	if err != nil {
		return nil, err
	}
	return P(d), nil
}

// goldens reads each kind of document.
var goldens = map[string]func(name string, b []byte) (doc.Document, error){
	"profile":     readAs[doc.Profile],
	"table":       readAs[doc.Table],
	"machine":     readAs[doc.Machine],
	"plan":        readAs[doc.Plan],
	"policy":      readAs[doc.Policy],
	"store":       readAs[doc.Manifest],
	"packed":      readAs[doc.Packed],
	"feasibility": readAs[doc.Feasibility],
	"curve":       readAs[doc.CurvePoint],
	"verify":      readAs[doc.Verify],
	"verifier":    readAs[doc.Verifier],
	"request":     readAs[doc.Request],
}

// A golden document is what Write makes of it. A change here is a change of
// the format, and deserves a commit of its own.
func TestGoldens(t *testing.T) {
	for name, read := range goldens {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			d, err := read(name, b)
			if err != nil {
				t.Fatal(err)
			}
			again, err := doc.Write(d)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, b) {
				t.Errorf("written again, %s.json differs", name)
			}
			for other, read := range goldens {
				if other != name {
					if _, err := read(name, b); err == nil {
						t.Errorf("a %s is read as a %s", name, other)
					}
				}
			}
		})
	}
}

// Reading never panics, and what is read can be written and read again.
func FuzzRead(f *testing.F) {
	for name := range goldens {
		b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(name, b)
	}
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		read, ok := goldens[name]
		if !ok {
			t.Skip()
		}
		d, err := read(name, b)
		if err != nil {
			return
		}
		again, err := doc.Write(d)
		if err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		if _, err := read(name, again); err != nil {
			t.Fatalf("written but not read: %v", err)
		}
	})
}
