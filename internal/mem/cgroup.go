package mem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// NoLimit is the limit of an environment that sets none.
const NoLimit = math.MaxInt64

// A Cgroup is what the memory controllers above this process allow it.
type Cgroup struct {
	// Limit is the smallest limit of the process's group and its ancestors,
	// NoLimit if none has one.
	Limit int64
	// Room is the smallest difference, over the same groups, of limit and
	// what is in use there and can't be reclaimed, this process included.
	Room int64
	// Group is the folder of the group that sets Limit, "" if none.
	Group string
}

// maxControlFile bounds what is read of one control file.
const maxControlFile = 1 << 20

// ReadCgroup finds the limits that the memory controllers of cgroup v1 and v2
// set for this process. root is the file system from "/"; hosts may mount both
// versions, with the memory controller in either.
func ReadCgroup(root fs.FS) (Cgroup, error) {
	c := Cgroup{Limit: NoLimit, Room: NoLimit}
	groups, err := readControlFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil // no cgroups in this kernel
	}
	if err != nil {
		return c, err
	}
	mounts, err := readControlFile(root, "proc/self/mountinfo")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy-ID:controller-list:cgroup-path, cgroups(7)
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			return c, fmt.Errorf("/proc/self/cgroup: %q: want three fields", line)
		}
		var v version
		switch {
		case fields[0] == "0" && fields[1] == "":
			v = version2
		case hasWord(fields[1], "memory"):
			v = version1
		default:
			continue
		}
		for _, m := range v.mounts(mounts) {
			if err := c.ascend(root, v, m, fields[2]); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// version holds what differs between the versions of cgroups.
type version struct {
	fsType, option    string // of the mount; the controller among its options in v1
	limit, used, stat string // control files
	reclaimable       []string
}

var (
	version1 = version{"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", []string{"total_inactive_file", "total_active_file"}}
	version2 = version{"cgroup2", "", "memory.max", "memory.current", "memory.stat", []string{"inactive_file", "active_file"}}
)

// mount is a mounted cgroup hierarchy: the group root is visible at point.
type mount struct{ root, point string }

// mounts finds the hierarchies of a version in the text of mountinfo.
func (v version) mounts(text []byte) []mount {
	var found []mount
	for line := range strings.Lines(string(text)) {
		// "31 23 0:28 ROOT POINT OPTIONS [TAGS] - TYPE SOURCE SUPEROPTIONS", proc(5)
		head, tail, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, super := strings.Fields(head), strings.Fields(tail)
		if !ok || len(fields) < 5 || len(super) < 3 || super[0] != v.fsType {
			continue
		}
		if v.option != "" && !hasWord(super[2], v.option) {
			continue
		}
		found = append(found, mount{unescape(fields[3]), unescape(fields[4])})
	}
	return found
}

// ascend lowers c to the limits of a group and its ancestors, as far up as the
// mount shows them.
func (c *Cgroup) ascend(root fs.FS, v version, m mount, group string) error {
	// In a container the mount may show only the groups below its root, and
	// the process's group as that root.
	below := group
	if m.root != "/" {
		var ok bool
		below, ok = strings.CutPrefix(group, m.root)
		if !ok || below != "" && below[0] != '/' {
			below = "/"
		}
	}
	for dir := path.Clean("/" + below); ; dir = path.Dir(dir) {
		if err := c.apply(root, v, path.Join(m.point, dir)); err != nil {
			return err
		}
		if dir == "/" {
			return nil
		}
	}
}

// apply lowers c to the limit of one group. The root group has no control
// files in v2, and a group without the controller neither: no limit there.
func (c *Cgroup) apply(root fs.FS, v version, dir string) error {
	limit, err := readNumber(root, path.Join(dir, v.limit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// v1 writes "no limit" as the largest multiple of a page.
	if limit >= math.MaxInt64-1<<20 {
		return nil
	}
	used, err := readNumber(root, path.Join(dir, v.used))
	if err != nil {
		return err
	}
	stat, err := readControlFile(root, path.Join(dir, v.stat))
	if err != nil {
		return err
	}
	for _, name := range v.reclaimable {
		used -= statValue(stat, name)
	}
	c.Room = min(c.Room, max(0, limit-max(0, used)))
	if limit < c.Limit {
		c.Limit, c.Group = limit, dir
	}
	return nil
}

// statValue finds "name value" in the text of memory.stat, 0 if it is not
// there.
func statValue(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(string(line)), " "); ok && key == name {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// readNumber reads a control file that holds one number, or "max".
func readNumber(root fs.FS, name string) (int64, error) {
	text, err := readControlFile(root, name)
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return NoLimit, nil
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/%s: %q is not a number of bytes", strings.TrimPrefix(name, "/"), word)
	}
	return int64(min(n, math.MaxInt64)), nil
}

// readControlFile reads a small file by its absolute path.
func readControlFile(root fs.FS, name string) ([]byte, error) {
	f, err := root.Open(strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxControlFile+1))
	if err == nil && len(text) > maxControlFile {
		err = fmt.Errorf("more than %d bytes", maxControlFile)
	}
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", strings.TrimPrefix(name, "/"), err)
	}
	return text, nil
}

// hasWord reports whether a comma-separated list holds a word.
func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// unescape undoes mountinfo's octal escapes of blanks and backslashes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
