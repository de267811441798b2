//go:build captest && linux

package captest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// cgroup is a memory cgroup made for one process.
type cgroup struct {
	dir string
	v2  bool
}

// newCgroup makes a cgroup with a hard limit and without swap, in whichever
// version has the memory controller; it skips the test where nobody may. The
// caller removes it.
func newCgroup(t *testing.T, name string, limit int64) *cgroup {
	t.Helper()
	g, err := makeCgroup(name)
	if err == nil {
		err = g.limit(limit)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		t.Skipf("SKIP: no memory cgroup can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func makeCgroup(name string) (*cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		g := &cgroup{dir: filepath.Join(f[1], name), v2: f[2] == "cgroup2"}
		switch {
		case f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",memory,"):
		case g.v2:
			controllers, err := os.ReadFile(filepath.Join(f[1], "cgroup.controllers"))
			if err != nil || !strings.Contains(string(controllers), "memory") {
				continue
			}
			// Children get the controller from their parent.
			if err := os.WriteFile(filepath.Join(f[1], "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
				return nil, err
			}
		default:
			continue
		}
		return g, os.Mkdir(g.dir, 0o755)
	}
	return nil, fs.ErrNotExist
}

func (g *cgroup) limit(bytes int64) error {
	set := func(file string, value int64) error {
		return os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.FormatInt(value, 10)), 0)
	}
	if g.v2 {
		return errors.Join(set("memory.max", bytes), optional(set("memory.swap.max", 0)))
	}
	return errors.Join(set("memory.limit_in_bytes", bytes), optional(set("memory.memsw.limit_in_bytes", bytes)), optional(set("memory.swappiness", 0)))
}

// optional ignores the absence of a control file: kernels without swap
// accounting.
func optional(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// oomKills is how often the kernel killed in the group.
func (g *cgroup) oomKills(t *testing.T) int64 {
	t.Helper()
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == "oom_kill" {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s: no line oom_kill", file)
	return 0
}

// enter wraps a command so that it runs in the group.
func (g *cgroup) enter(argv []string) []string {
	script := fmt.Sprintf(`echo $$ >%s/cgroup.procs && exec "$@"`, g.dir)
	return append([]string{"/bin/sh", "-c", script, "sh"}, argv...)
}

func (g *cgroup) remove(t *testing.T) {
	if err := os.Remove(g.dir); err != nil {
		t.Error(err)
	}
}
