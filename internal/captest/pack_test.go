//go:build captest && linux

package captest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"substrate/pkg/store"
)

// sb-pack says what memory it needs, works under a cgroup of just that, and
// needs no more than the records of the largest op and 256 MiB.
func TestPackRAM(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	// An embedding of 49 M values is most of the model.
	tool(t, "sb-synth", "checkpoint", "-q", "-o", path("model"), "--layers", "2", "--hidden", "1024", "--heads", "8", "--vocab", "48000")
	tool(t, "sb-calibrate", "profile", "-q", path("model"), "-o", path("profile.json"))
	tool(t, "sb-synth", "table", "-q", path("profile.json"), "-o", path("table.json"))
	tool(t, "sb-plan", "-q", "--strategy", "uniform", "--max-ram", "170M", "--context", "256", path("table.json"), "-o", path("plan.json"))
	pack := func(output string, more ...string) []string {
		return append([]string{"sb-pack", "-q", "--model", path("model"), "-o", path(output), path("plan.json")}, more...)
	}
	inGroup := func(ram int64, argv ...string) *outcome {
		g := newCgroup(t, fmt.Sprintf("sb-captest-%d", os.Getpid()), ram)
		defer g.remove(t)
		o := runIn(t, g, argv...)
		if g.oomKills(t) > 0 || o.killed {
			t.Fatalf("killed under a cap of %d: %s", ram, o.stderr)
		}
		return o
	}
	for _, flags := range [][]string{nil, {"--compress"}} {
		output := fmt.Sprintf("%d.sb", len(flags))
		dry := tool(t, "sb-pack", pack(output, append(flags, "--dry-run")...)[1:]...)
		m := regexp.MustCompile(`(?m)^memory .*\((\d+) bytes\)`).FindSubmatch(dry)
		if m == nil {
			t.Fatalf("no memory in %s", dry)
		}
		need, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		workRAM := func(n int64) []string { return append(flags, "--work-ram", strconv.FormatInt(n, 10)) }
		if o := inGroup(need, pack(output, workRAM(need-1)...)...); o.code != 1 {
			t.Errorf("%v: exit code %d for less than %d: %s", flags, o.code, need, o.stderr)
		}
		o := inGroup(need, pack(output, workRAM(need)...)...)
		if o.code != 0 {
			t.Fatalf("%v: exit code %d under a cap of %d: %s", flags, o.code, need, o.stderr)
		}
		s, err := store.Open(path(output))
		if err != nil {
			t.Fatal(err)
		}
		largest := int64(0) // op
		bytes := map[string]int64{}
		for i := range s.Manifest().Records {
			r := &s.Manifest().Records[i]
			bytes[r.Op] += s.Layout(r).Bytes
			largest = max(largest, bytes[r.Op])
		}
		if o.peak > need || o.peak > largest+256<<20 {
			t.Errorf("%v: VmHWM %d, needed %d, the largest op has %d", flags, o.peak, need, largest)
		}
		t.Logf("%v: VmHWM %.1f MiB, cap %.1f MiB, the largest op %.1f MiB", flags, float64(o.peak)/(1<<20), float64(need)/(1<<20), float64(largest)/(1<<20))
	}
}
