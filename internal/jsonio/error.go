package jsonio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-json/jsontext"
	json "github.com/goccy/go-json/v2"
)

// Error says what is wrong with a document, and where.
type Error struct {
	File    string  // name of the document; "" while writing
	Line    int     // line in the file, from 1; 0 if the place is known by Pointer alone
	Column  int     // byte in the line, from 1; 0 for a record of a stream
	Offset  int64   // byte in the document or record at or after which the error is
	Pointer Pointer // value within which the error is; "" is the document or record itself
	Reason  string
	Err     error // underlying error, may be nil
}

// Error has the form "plan.json: /op_bundles/3: reason", "plan.json:7:12: /op_bundles: reason" for text that is not
// JSON, or "trace.jsonl:17: /tier: reason" in a stream.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		b.WriteString(":" + strconv.Itoa(e.Line))
		if e.Column > 0 {
			b.WriteString(":" + strconv.Itoa(e.Column))
		}
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if e.Pointer != "" {
		b.WriteString(string(e.Pointer))
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes the error of a value that is well formed but not valid, such as a reference to nothing. The file's name
// may be left empty by code that does not know it: see [Name].
func Errorf(name string, at Pointer, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{File: name, Pointer: at, Reason: err.Error(), Err: errors.Unwrap(err)}
}

// Name gives the file's name to an *Error in err that has none.
func Name(name string, err error) error {
	var e *Error
	if errors.As(err, &e) && e.File == "" {
		e.File = name
	}
	return err
}

// Within places an error about a part of a document, at the pointer, in the whole: the pointer goes before that of an
// *Error, another error becomes an *Error. The name of the document is given if the error has none yet; it may be empty.
func Within(name string, at Pointer, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{File: name, Pointer: at, Reason: err.Error(), Err: err}
	}
	e.Pointer = at + e.Pointer
	e.Line, e.Column = 0, 0
	if e.File == "" {
		e.File = name
	}
	return err
}

// newError translates an error of the JSON package about the text b, nil while writing.
func newError(name string, b []byte, err error) error {
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &semantic):
		e := &Error{File: name, Offset: semantic.ByteOffset, Pointer: semantic.JSONPointer, Err: semantic.Err}
		if inner := (*Error)(nil); errors.As(semantic.Err, &inner) { // a type's own method read with this package
			e.Pointer += inner.Pointer
			e.Reason, e.Err = inner.Reason, inner.Err
			return e
		}
		e.Reason = semanticReason(semantic)
		if semantic.Err == json.ErrUnknownName {
			e.Pointer = semantic.JSONPointer.Parent()
		}
		return e
	case errors.As(err, &syntactic):
		e := &Error{File: name, Offset: syntactic.ByteOffset, Pointer: syntactic.JSONPointer, Err: syntactic.Err}
		e.Reason = syntacticReason(b, syntactic)
		if syntactic.Err == jsontext.ErrDuplicateName {
			e.Pointer = syntactic.JSONPointer.Parent()
		}
		if b != nil {
			e.Line, e.Column = position(b, syntactic.ByteOffset)
		}
		return e
	}
	return &Error{File: name, Reason: err.Error(), Err: err}
}

// position is the line and the byte in it, both from 1, of an offset in b.
func position(b []byte, offset int64) (line, column int) {
	before := b[:min(int(offset), len(b))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

func syntacticReason(b []byte, e *jsontext.SyntacticError) string {
	switch e.Err {
	case jsontext.ErrDuplicateName:
		return fmt.Sprintf("member %q occurs twice", e.JSONPointer.LastToken())
	case io.ErrUnexpectedEOF:
		if b != nil && len(bytes.TrimSpace(b)) == 0 {
			return "empty where a JSON value should be"
		}
		return "ends in the middle of a value"
	}
	return e.Err.Error()
}

func semanticReason(e *json.SemanticError) string {
	switch {
	case e.Err == json.ErrUnknownName:
		return fmt.Sprintf("unknown member %q", e.JSONPointer.LastToken())
	case e.JSONKind == 0 && e.Err != nil: // writing, or a type's own method
		return e.Err.Error()
	case e.JSONKind == 0:
		return fmt.Sprintf("no JSON for the Go type %v", e.GoType)
	}
	found := kindName(e.JSONKind)
	if len(e.JSONValue) > 0 && len(e.JSONValue) <= 40 {
		found += " " + string(e.JSONValue)
	}
	switch want := typeName(e.GoType); {
	case errors.Is(e.Err, strconv.ErrRange):
		return found + " is out of range"
	case e.Err != nil && !errors.Is(e.Err, strconv.ErrSyntax):
		return found + ": " + e.Err.Error()
	case want == "":
		return found + " is not allowed here"
	default:
		return found + " where " + want + " should be"
	}
}

func withArticle(k jsontext.Kind) string {
	name := kindName(k)
	if name[0] == 'a' || name[0] == 'o' {
		return "an " + name
	}
	return "a " + name
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{', '}':
		return "object"
	case '[', ']':
		return "array"
	}
	return "value"
}

// typeName says in JSON's words what a Go type takes, "" if it decides for itself.
func typeName(t reflect.Type) string {
	if t == nil {
		return ""
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer not below 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return ""
}
