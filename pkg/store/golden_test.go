package store_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"substrate/pkg/doc"
	"substrate/pkg/store"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.txt")

// The bytes of records are a contract: calibration measured them, other
// machines make them. A difference here needs a new version of a fit or of the
// format.
func TestGolden(t *testing.T) {
	var b strings.Builder
	for _, path := range []string{denseModel, moeModel} {
		m := openModel(t, path)
		for _, c := range []struct {
			name   string
			ladder func(*doc.Op) ladder
		}{{"lsq", mixed}, {"minmax", quick}, {"lsq, 4 bits", uniform(q4)}} {
			dir := filepath.Join(t.TempDir(), "m.sb")
			write(t, newBuild(t, spec(t, m, makePlan(t, m.Profile(), c.ladder, nil))), dir, options(m))
			s, err := store.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range s.Manifest().Records {
				fmt.Fprintf(&b, "%s, %s: %s %s %08x %s\n", filepath.Base(path), c.name, r.ID, r.Encoding, r.CRC32C, r.Identity[:16])
			}
		}
	}
	if *update {
		if err := os.WriteFile("testdata/golden.txt", []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("records differ (-want, +got):\n%s", diff)
	}
}
