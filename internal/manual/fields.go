package manual

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// types are the struct types of the documents by name, with embedded structs
// in place.
type types map[string]*document

// document is a struct type as a JSON object.
type document struct {
	text   string // the comment
	fields []field
}

// field is a member of an object.
type field struct {
	name     string
	kind     string // "integer", "array of strings" ...
	of       string // the struct type that the value, or its elements, are of
	optional bool
	text     string
}

// readTypes reads the types of packages from their sources.
func readTypes(dirs ...string) (types, error) {
	specs := map[string]*ast.TypeSpec{}
	docs := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		slices.Sort(files)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			for _, d := range file.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, s := range g.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && s.Name.IsExported() {
						specs[s.Name.Name] = s
						docs[s.Name.Name] = g.Doc.Text()
					}
				}
			}
		}
	}
	all := types{}
	for name, s := range specs {
		if st, ok := s.Type.(*ast.StructType); ok {
			all[name] = &document{text: docs[name], fields: fieldsOf(st, specs)}
		}
	}
	return all, nil
}

func fieldsOf(st *ast.StructType, specs map[string]*ast.TypeSpec) []field {
	var list []field
	for _, f := range st.Fields.List {
		if len(f.Names) == 0 { // embedded
			if id, ok := f.Type.(*ast.Ident); ok && specs[id.Name] != nil {
				if inner, ok := specs[id.Name].Type.(*ast.StructType); ok {
					list = append(list, fieldsOf(inner, specs)...)
				}
			}
			continue
		}
		if f.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		name, flags, _ := strings.Cut(tag, ",")
		if name == "" || name == "-" {
			continue
		}
		x := field{name: name, optional: strings.Contains(flags, "omit"), text: oneParagraph(f.Doc.Text() + " " + f.Comment.Text())}
		x.kind, x.of = kindOf(f.Type, specs)
		list = append(list, x)
	}
	return list
}

func oneParagraph(s string) string { return strings.Join(strings.Fields(s), " ") }

// kindOf names the JSON of a Go type.
func kindOf(t ast.Expr, specs map[string]*ast.TypeSpec) (kind, of string) {
	switch t := t.(type) {
	case *ast.StarExpr:
		return kindOf(t.X, specs)
	case *ast.ArrayType:
		kind, of := kindOf(t.Elt, specs)
		return "array of " + kind + "s", of
	case *ast.MapType:
		kind, of := kindOf(t.Value, specs)
		return "object of " + kind + "s by name", of
	case *ast.Ident:
		switch {
		case t.Name == "string":
			return "string", ""
		case t.Name == "bool":
			return "boolean", ""
		case strings.HasPrefix(t.Name, "int"), strings.HasPrefix(t.Name, "uint"):
			return "integer", ""
		case strings.HasPrefix(t.Name, "float"):
			return "number", ""
		case specs[t.Name] != nil:
			if _, ok := specs[t.Name].Type.(*ast.StructType); ok {
				return "object", t.Name
			}
			return kindOf(specs[t.Name].Type, specs)
		}
	}
	return "value", ""
}

// write lists the members of a type, and then those of the types in it.
func (all types) write(b *strings.Builder, name string) error {
	if all[name] == nil {
		return fmt.Errorf("no type %s in pkg/doc and pkg/trace", name)
	}
	all.writeType(b, name, "", map[string]bool{})
	return nil
}

func (all types) writeType(b *strings.Builder, name, at string, seen map[string]bool) {
	seen[name] = true
	d := all[name]
	for _, f := range d.fields {
		kind := f.kind
		if f.optional {
			kind += ", may be missing"
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR (%s)\n", escape(at+f.name), kind)
		switch {
		case f.text != "":
			b.WriteString(escape(f.text) + "\n")
		case f.of != "" && all[f.of].text != "":
			b.WriteString(escape(typeText(f.of, all[f.of].text)) + "\n")
		default:
			b.WriteString("\\&\n")
		}
		if f.of == "" {
			continue
		}
		if seen[f.of] {
			b.WriteString("Its members are listed above.\n")
			continue
		}
		inner := at + f.name + "."
		if strings.HasPrefix(f.kind, "array") {
			inner = at + f.name + "[]."
		}
		all.writeType(b, f.of, inner, seen)
	}
}

// typeText is the comment of a type without the Go name that it begins with.
func typeText(name, text string) string {
	text = oneParagraph(text)
	for _, is := range []string{name + " is ", name + " are ", name + " says ", "A " + name + " is ", "An " + name + " is "} {
		if rest, ok := strings.CutPrefix(text, is); ok {
			return rest
		}
	}
	return text
}
