package lint

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "substrate/"

// layers is the order of the packages: each may import those of earlier lines, and its own family (pkg/backend/ref
// imports pkg/backend). A package below one that is named belongs to its line.
var layers = [][]string{
	{"internal/jsonio", "internal/vfs", "internal/crc32c"},
	{"pkg/doc", "internal/faultfs", "internal/safetensors", "schema"},
	{"pkg/plane", "internal/mem"},
	{"pkg/model", "pkg/backend", "pkg/tokenizer", "pkg/chat", "pkg/trace"},
	{"pkg/arch", "pkg/quant"},
	{"pkg/footprint"},
	{"pkg/plan", "pkg/store", "pkg/stream"},
	{"pkg/run", "pkg/synth"},
	{"pkg/calib"},
	{"internal/cli", "internal/clitest", "internal/captest", "internal/lint"},
	{"internal/backends", "internal/budget", "internal/text", "internal/manual"},
	{"cmd", "internal/tierdemo"},
}

// only names packages that may import nothing of ours beyond a few.
var only = map[string][]string{
	"pkg/tokenizer":    {"pkg/doc", "internal/jsonio"},
	"pkg/chat":         {"pkg/doc", "internal/jsonio"},
	"pkg/trace":        {"pkg/doc", "internal/jsonio"},
	"internal/jsonio":  {},
	"internal/mem":     {"pkg/doc"},
	"internal/vfs":     {},
	"internal/cli":     {"internal/jsonio"},
	"internal/clitest": {},
	"internal/captest": {},
}

// importers names packages that few may import.
var importers = map[string][]string{
	"internal/cli":    {"cmd", "internal/backends", "internal/budget", "internal/manual", "internal/tierdemo"},
	"pkg/backend/ref": {"internal/backends", "pkg/backend", "cmd"},
	"pkg/backend/cpu": {"internal/backends", "pkg/backend", "cmd"},
	"pkg/backend/mlx": {"internal/backends", "pkg/backend", "cmd"},
}

// withinAny reports whether a package is one of, or below one of, some folders.
func withinAny(pkg string, folders ...string) bool {
	for _, f := range folders {
		if pkg == f || strings.HasPrefix(pkg, f+"/") {
			return true
		}
	}
	return false
}

// layer is the place of a package in layers, and the entry that it belongs to.
func layer(pkg string) (line int, entry string, ok bool) {
	for i, entries := range layers {
		for _, e := range entries {
			if withinAny(pkg, e) {
				return i, e, true
			}
		}
	}
	return 0, "", false
}

// checkImports keeps the layers.
func checkImports(files []file, report report) {
	for _, f := range program(files) {
		from, family, ok := layer(f.folder())
		if !ok {
			report("%s: the package is not in the list of layers: give it a place", f.path)
			continue
		}
		for path := range f.imports() {
			pkg, ours := strings.CutPrefix(path, module)
			if !ours || withinAny(pkg, family) {
				continue
			}
			if to, _, ok := layer(pkg); !ok || to >= from {
				report("%s imports %s, which is not below it", f.path, pkg)
			}
			if allowed, ok := only[family]; ok && !withinAny(pkg, allowed...) {
				report("%s imports %s; of ours it may import %v only", f.path, pkg, allowed)
			}
			if allowed, ok := importers[pkg]; ok && !withinAny(f.folder(), allowed...) {
				report("%s imports %s, which is for %v only", f.path, pkg, allowed)
			}
		}
	}
}

// checkLibraries keeps JSON in one package.
func checkLibraries(files []file, report report) {
	for _, f := range files {
		if !f.isGo() {
			continue
		}
		for path := range f.imports() {
			if withinAny(path, "github.com/goccy/go-json") && f.folder() != "internal/jsonio" ||
				path == "encoding/json" && f.folder() != "internal/jsonio" && !f.isTest() {
				report("%s imports %s: JSON is read and written by internal/jsonio", f.path, path)
			}
		}
	}
}

// checkC keeps C in the backends that are written in it.
func checkC(files []file, report report) {
	for _, f := range files {
		if f.isGo() && (f.imports()["C"] || f.imports()["runtime/cgo"]) && !withinAny(f.folder(), "pkg/backend/cpu", "pkg/backend/mlx") {
			report("%s uses C: only the backends cpu and mlx may", f.path)
		}
	}
}

// checkPure: byte formulas depend on their arguments alone.
func checkPure(files []file, report report) {
	impure := []string{"os", "time", "math/rand", "io/fs", "runtime", "syscall", "golang.org/x/sys"}
	for _, f := range program(files) {
		if !withinAny(f.folder(), "pkg/footprint") {
			continue
		}
		for path := range f.imports() {
			if withinAny(path, impure...) {
				report("%s imports %s: its results are to depend on its arguments alone", f.path, path)
			}
		}
	}
}

// TestToolsWithoutC: the tools that only compute with documents run everywhere, without a C library of ours or of others.
func TestToolsWithoutC(t *testing.T) {
	for _, tool := range []string{"sb-plan", "sb-feasible", "sb-trace", "sb-synth"} {
		if _, err := os.Stat(root + "/cmd/" + tool + "/main.go"); err != nil {
			t.Logf("%s: not there yet", tool)
			continue
		}
		cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,CgoFiles", "./cmd/"+tool)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var pkg struct {
				ImportPath string
				Standard   bool
				CgoFiles   []string
			}
			if err := d.Decode(&pkg); err != nil {
				t.Fatal(err)
			}
			if len(pkg.CgoFiles) > 0 && !pkg.Standard {
				t.Errorf("%s links C, in %s", tool, pkg.ImportPath)
			}
		}
	}
}
