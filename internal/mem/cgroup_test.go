package mem

import (
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	hybridMounts = `25 23 0:23 / /proc rw shared:7 - proc proc rw
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 cgroup2 rw
`
	unifiedMounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
)

// files makes a file system from pairs of path and text.
func files(pairs ...string) fstest.MapFS {
	m := make(fstest.MapFS)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func TestReadCgroup(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name string
		fs   fs.FS
		want Cgroup
	}{
		{"no cgroups", files(), Cgroup{NoLimit, NoLimit, ""}},
		{"v2, ancestor is smaller", files(
			"proc/self/cgroup", "0::/a/b\n", "proc/self/mountinfo", unifiedMounts,
			"sys/fs/cgroup/a/memory.max", "1048576\n", "sys/fs/cgroup/a/memory.current", "524288\n",
			"sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 4096\nactive_file 8192\n",
			"sys/fs/cgroup/a/b/memory.max", "4194304\n", "sys/fs/cgroup/a/b/memory.current", "262144\n",
			"sys/fs/cgroup/a/b/memory.stat", "anon 1\n",
		), Cgroup{mib, mib/2 + 4096 + 8192, "/sys/fs/cgroup/a"}},
		{"v2, max everywhere", files(
			"proc/self/cgroup", "0::/a\n", "proc/self/mountinfo", unifiedMounts,
			"sys/fs/cgroup/a/memory.max", "max\n",
		), Cgroup{NoLimit, NoLimit, ""}},
		{"v2 in a container: the group is the mount's root", files(
			"proc/self/cgroup", "0::/\n",
			"proc/self/mountinfo", "30 23 0:26 /../.. /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory.max", "2097152\n", "sys/fs/cgroup/memory.current", "0\n", "sys/fs/cgroup/memory.stat", "",
		), Cgroup{2 * mib, 2 * mib, "/sys/fs/cgroup"}},
		{"hybrid: the controller is in v1", files(
			"proc/self/cgroup", "4:memory:/x/y\n1:cpu:/\n0::/\n", "proc/self/mountinfo", hybridMounts,
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "3145728\n",
			"sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "2097152\n",
			"sys/fs/cgroup/memory/x/y/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 0\n",
		), Cgroup{3 * mib, 2 * mib, "/sys/fs/cgroup/memory/x/y"}},
		{"v1 in a container: the mount's root is cut off", files(
			"proc/self/cgroup", "4:memory:/docker/abc/x\n",
			"proc/self/mountinfo", `35 31 0:32 /docker/abc /sys/fs/cgroup\040m ro - cgroup cgroup rw,memory`+"\n",
			"sys/fs/cgroup m/x/memory.limit_in_bytes", "4194304\n",
			"sys/fs/cgroup m/x/memory.usage_in_bytes", "0\n", "sys/fs/cgroup m/x/memory.stat", "",
			"sys/fs/cgroup m/memory.limit_in_bytes", "2097152\n",
			"sys/fs/cgroup m/memory.usage_in_bytes", "4194304\n", "sys/fs/cgroup m/memory.stat", "",
		), Cgroup{2 * mib, 0, "/sys/fs/cgroup m"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadCgroup(tt.fs)
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestReadCgroupRejects(t *testing.T) {
	for name, tt := range map[string]struct {
		fs   fs.FS
		want string
	}{
		"odd line":  {files("proc/self/cgroup", "4:memory\n", "proc/self/mountinfo", ""), "want three fields"},
		"no number": {files("proc/self/cgroup", "0::/a\n", "proc/self/mountinfo", unifiedMounts, "sys/fs/cgroup/a/memory.max", "-1\n"), `/sys/fs/cgroup/a/memory.max: "-1" is not a number of bytes`},
		"no usage":  {files("proc/self/cgroup", "0::/a\n", "proc/self/mountinfo", unifiedMounts, "sys/fs/cgroup/a/memory.max", "1\n"), "memory.current"},
		"too long":  {files("proc/self/cgroup", strings.Repeat("x", maxControlFile+1)), "more than"},
	} {
		if _, err := ReadCgroup(tt.fs); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// FuzzReadCgroup: whatever the files say, there is an answer or an error, and
// never more room than limit.
func FuzzReadCgroup(f *testing.F) {
	f.Add("0::/a\n", unifiedMounts, "1048576\n", "524288\n", "inactive_file 4096\n")
	f.Add("4:memory:/a\n0::/\n", hybridMounts, "max", "0", "")
	f.Add("0::/../..\n", unifiedMounts, "18446744073709551615", "18446744073709551615", "inactive_file -9223372036854775808\nactive_file 9223372036854775807")
	f.Fuzz(func(t *testing.T, groups, mounts, limit, used, stat string) {
		fsys := files("proc/self/cgroup", groups, "proc/self/mountinfo", mounts)
		for _, dir := range []string{"sys/fs/cgroup/a/", "sys/fs/cgroup/memory/a/", "sys/fs/cgroup/"} {
			fsys[dir+"memory.max"] = &fstest.MapFile{Data: []byte(limit)}
			fsys[dir+"memory.limit_in_bytes"] = &fstest.MapFile{Data: []byte(limit)}
			fsys[dir+"memory.current"] = &fstest.MapFile{Data: []byte(used)}
			fsys[dir+"memory.usage_in_bytes"] = &fstest.MapFile{Data: []byte(used)}
			fsys[dir+"memory.stat"] = &fstest.MapFile{Data: []byte(stat)}
		}
		c, err := ReadCgroup(fsys)
		if err == nil && (c.Limit < 0 || c.Room < 0 || c.Room > c.Limit) {
			t.Errorf("got %+v", c)
		}
	})
}

func TestEnvironment(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	e, err := ReadEnvironment(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	if e.Total <= 0 || e.Available <= 0 || e.Available > e.Total || e.Cgroup.Room > e.Cgroup.Limit {
		t.Errorf("got %+v", e)
	}
	if auto := e.Auto(0); auto <= 0 || auto > e.Available {
		t.Errorf("auto is %d of %+v", auto, e)
	}
}
