package lint

import (
	"go/ast"
	"go/token"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// checkLength: one idea a file.
func checkLength(files []file, report report) {
	const most, mostOfMain = 600, 60
	for _, f := range files {
		switch path.Ext(f.path) {
		case ".go", ".c", ".h", ".cc", ".cpp", ".py", ".sh":
		default:
			continue
		}
		if f.lines() > most && !f.generated() {
			report("%s: %d lines, at most %d are good to read", f.path, f.lines(), most)
		}
		if withinAny(f.folder(), "cmd") && path.Base(f.path) == "main.go" && f.lines() > mostOfMain {
			report("%s: %d lines; it only names the verbs, which have files of their own", f.path, f.lines())
		}
	}
}

// checkInit: what runs before main can neither fail nor be left out.
func checkInit(files []file, report report) {
	for _, f := range program(files) {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				report("%s: func init", f.at(fn.Pos()))
			}
		}
	}
}

// checkFloat32: a float32 is written with digits that a float64 reader takes for another number.
func checkFloat32(files []file, report report) {
	for _, f := range program(files) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil {
				return true
			}
			tag, _ := strconv.Unquote(field.Tag.Value)
			if _, tagged := reflect.StructTag(tag).Lookup("json"); !tagged {
				return true
			}
			ast.Inspect(field.Type, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok && name.Name == "float32" {
					report("%s: float32 in JSON", f.at(n.Pos()))
				}
				return true
			})
			return true
		})
	}
}

// checkStreams: only internal/cli touches the process's streams, arguments and exit, so that its rules hold.
func checkStreams(files []file, report report) {
	process := map[string]string{"Stdin": "os", "Stdout": "os", "Stderr": "os", "Args": "os", "Exit": "os",
		"Print": "fmt", "Printf": "fmt", "Println": "fmt"}
	for _, f := range program(files) {
		if withinAny(f.folder(), "internal/cli", "internal/clitest") || !withinAny(f.folder(), "cmd", "pkg", "internal") {
			continue
		}
		for name := range f.imports() {
			if name == "log" {
				report("%s imports log: messages are internal/cli's", f.path)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Obj == nil && process[sel.Sel.Name] == pkg.Name {
					report("%s: %s.%s is internal/cli's", f.at(n.Pos()), pkg.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// personal matches an absolute path of somebody's machine.
var personal = regexp.MustCompile(`(^|[^A-Za-z0-9_./()-])/(home|Users|root|work|tmp/team)/`)

// checkPaths: the project knows nothing of the machines that it was written on.
func checkPaths(files []file, report report) {
	for _, f := range files {
		for i, line := range strings.Split(string(f.text), "\n") {
			if personal.MatchString(line) {
				report("%s:%d: a path of one machine: %.100s", f.path, i+1, line)
			}
		}
	}
}

// checkState: variables of a package are constants in all but name, such as error values, tables and compiled
// regular expressions. They have a value from the start, no lock, pool or counter in them, and nobody assigns to them.
func checkState(files []file, report report) {
	packages := map[string][]file{}
	for _, f := range program(files) {
		packages[f.folder()] = append(packages[f.folder()], f)
	}
	for _, members := range packages {
		variables := map[string]bool{}
		for _, f := range members {
			for _, spec := range packageVariables(f) {
				for _, name := range spec.Names {
					variables[name.Name] = name.Name != "_"
				}
				if reason := mutable(spec); reason != "" {
					report("%s: variable %s of the package %s", f.at(spec.Pos()), spec.Names[0], reason)
				}
			}
		}
		for _, f := range members {
			for _, id := range assigned(f) {
				if variables[id.Name] && isPackageLevel(f, id) {
					report("%s: %s is a variable of the package and is assigned to", f.at(id.Pos()), id.Name)
				}
			}
		}
	}
}

func packageVariables(f file) []*ast.ValueSpec {
	var specs []*ast.ValueSpec
	for _, decl := range f.ast.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.VAR {
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec)
				embedded := gen.Doc != nil && strings.Contains(commentText(gen.Doc), "//go:embed")
				if value.Names[0].Name != "_" && !embedded {
					specs = append(specs, value)
				}
			}
		}
	}
	return specs
}

func commentText(group *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range group.List {
		b.WriteString(c.Text + "\n")
	}
	return b.String()
}

// mutable says why a variable is not as good as a constant, "" if it may be.
func mutable(spec *ast.ValueSpec) string {
	if len(spec.Values) == 0 {
		return "has no value from the start"
	}
	reason := ""
	inspect := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "make" || fn.Name == "new") {
				reason = "is made empty, to be filled later"
			}
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			switch {
			case !ok || strings.HasPrefix(n.Sel.Name, "Once"): // sync.OnceValue computes a constant late
			case pkg.Name == "sync" || pkg.Name == "atomic":
				reason = "holds " + pkg.Name + "." + n.Sel.Name
			case pkg.Name == "flag" || pkg.Name == "pflag":
				reason = "is a flag"
			}
		}
		return true
	}
	if spec.Type != nil {
		ast.Inspect(spec.Type, inspect)
	}
	for _, v := range spec.Values {
		ast.Inspect(v, inspect)
	}
	return reason
}

// assigned is the variables that a file's statements change: x in x = 1, x.f++, x[i] = 1, delete(x, k), clear(x).
func assigned(f file) []*ast.Ident {
	var ids []*ast.Ident
	add := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.Ident:
				ids = append(ids, x)
				return
			case *ast.SelectorExpr:
				e = x.X
			case *ast.IndexExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			default:
				return
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, left := range n.Lhs {
					add(left)
				}
			}
		case *ast.IncDecStmt:
			add(n.X)
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear") && len(n.Args) > 0 {
				add(n.Args[0])
			}
		}
		return true
	})
	return ids
}

// isPackageLevel reports whether an identifier, which a variable of its package shares the name with, is that variable.
// The parser resolves local names; those of the package it leaves open or binds to their declaration.
func isPackageLevel(f file, id *ast.Ident) bool {
	if id.Obj == nil {
		return true
	}
	spec, ok := id.Obj.Decl.(*ast.ValueSpec)
	if !ok {
		return false
	}
	for _, s := range packageVariables(f) {
		if s == spec {
			return true
		}
	}
	return false
}
