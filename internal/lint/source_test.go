package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

// file is one file of the repository.
type file struct {
	path string // from the root, with slashes
	text []byte
	fset *token.FileSet
	ast  *ast.File // nil if not Go
}

func (f file) isGo() bool      { return f.ast != nil }
func (f file) isTest() bool    { return strings.HasSuffix(f.path, "_test.go") }
func (f file) folder() string  { return filepath.ToSlash(filepath.Dir(f.path)) }
func (f file) lines() int      { return bytes.Count(f.text, []byte("\n")) }
func (f file) generated() bool { return f.isGo() && ast.IsGenerated(f.ast) }

// at is a place in a file for a message.
func (f file) at(pos token.Pos) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(pos).Line)
}

// imports reports the paths that the file imports.
func (f file) imports() map[string]bool {
	paths := map[string]bool{}
	for _, spec := range f.ast.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		paths[path] = true
	}
	return paths
}

// maxText is the size up to which a file is read: beyond it is data.
const maxText = 1 << 20

// readSource reads and parses the repository: all files but those that git ignores too.
func readSource() ([]file, error) {
	var files []file
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case ".git", "build", "bin", "__pycache__":
				return fs.SkipDir
			}
			return nil
		}
		if info, err := entry.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > maxText {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, err := parseFile(filepath.ToSlash(rel), text)
		files = append(files, f)
		return err
	})
	return files, err
}

func parseFile(path string, text []byte) (f file, err error) {
	f = file{path: path, text: text, fset: token.NewFileSet()}
	if strings.HasSuffix(path, ".go") && !strings.Contains(path, "testdata/") {
		f.ast, err = parser.ParseFile(f.fset, path, text, parser.ParseComments)
	}
	return f, err
}

// report says that a rule is broken.
type report func(format string, args ...any)

// program is the Go files that go into the tools: not the tests.
func program(files []file) []file {
	var of []file
	for _, f := range files {
		if f.isGo() && !f.isTest() {
			of = append(of, f)
		}
	}
	return of
}

// rules is every rule that can be checked on the source alone.
var rules = map[string]func([]file, report){
	"imports":   checkImports,
	"libraries": checkLibraries,
	"c":         checkC,
	"pure":      checkPure,
	"length":    checkLength,
	"init":      checkInit,
	"float32":   checkFloat32,
	"streams":   checkStreams,
	"paths":     checkPaths,
	"state":     checkState,
}

func TestSource(t *testing.T) {
	files, err := readSource()
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range rules {
		t.Run(name, func(t *testing.T) { check(files, t.Errorf) })
	}
}
