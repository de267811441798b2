// Package jsonio is the only place where JSON is read and written.
//
// Our own documents (design: "sb.plan/1" and the like) are read by [Unmarshal] and written by [Marshal]; streams of
// records, one JSON object a line, by [Decoder] and [Encoder]; files that others made (config.json, tokenizer.json, the
// header of a safetensors file) by [UnmarshalLoose], or piece by piece, in their order, by [Members] and [Elements].
//
// Rules of our own documents, kept in both directions:
//
//   - member names match exactly and are known; no name occurs twice; text is valid UTF-8; nothing follows the value
//   - no null: what is not there is left out (a nil slice is [], a nil map is {})
//   - no integer beyond 2^53, which jq and JavaScript would round without a word
//   - no NaN and no infinity
//   - equal values give equal bytes: struct members in their order, map members sorted
//
// A member that may be missing is tagged "omitzero"; "omitempty" leaves out empty strings, arrays and objects only, but
// writes 0 and false.
//
// What lies under a member named "annotations" belongs to the user: there null and big integers pass, and the bytes of a
// [RawValue] are carried through as they came.
//
// Every error of reading is an [*Error] that names the file, the place and the reason.
package jsonio

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/goccy/go-json/jsontext"
	json "github.com/goccy/go-json/v2"
)

// RawValue is the text of one JSON value. As a struct field it takes and gives the value as it stands, members in their
// order and numbers digit for digit; only white space is changed by writing.
type RawValue = jsontext.Value

// Pointer is a JSON pointer (RFC 6901): "" is the whole document, "/ops/3/id" a value in it.
type Pointer = jsontext.Pointer

// MaxInteger is the greatest integer that a document may hold, 2^53, and its negative the least: beyond it a reader
// whose numbers are float64 rounds.
const MaxInteger = 1 << 53

// Unmarshal reads one of our own documents, b, into v, a pointer. The name, usually the file's, starts every error.
// After an error v may be partly filled and is not to be used.
func Unmarshal(name string, b []byte, v any) error {
	if err := json.Unmarshal(b, v, json.RejectUnknownMembers(true)); err != nil {
		return newError(name, b, err)
	}
	return check(name, b)
}

// UnmarshalLoose reads a document that others made: unknown members are skipped, null and big integers pass. Duplicate
// names, invalid UTF-8 and trailing data are errors here too.
func UnmarshalLoose(name string, b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return newError(name, b, err)
	}
	return nil
}

// UnmarshalKnown reads a value that others made and of which every member must be known, as a component of a
// tokenizer.json: an unknown one might change the result. Null and big integers pass.
func UnmarshalKnown(name string, b []byte, v any) error {
	if err := json.Unmarshal(b, v, json.RejectUnknownMembers(true)); err != nil {
		return newError(name, b, err)
	}
	return nil
}

// Marshal writes v as a document: indented by one space, with a line feed at its end.
func Marshal(v any) ([]byte, error) {
	return marshal(v, jsontext.WithIndent(" "))
}

// MarshalLine writes v as a record of a stream: on one line, with a line feed at its end.
func MarshalLine(v any) ([]byte, error) {
	return marshal(v, jsontext.Multiline(false))
}

func marshal(v any, layout jsontext.Options) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true), layout)
	if err != nil {
		return nil, writeError(v, err)
	}
	if err := check("", b); err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// writeError translates the error of writing v. The JSON package names only the object in which a NaN or an infinity is,
// not the member; so v is written once more with an eye on every float.
func writeError(v any, err error) error {
	finite := func(_ *jsontext.Encoder, f float64) error {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%v is not a value here, leave the member out", f)
		}
		return errors.ErrUnsupported // written as if this function were not there
	}
	if _, again := json.Marshal(v, json.Deterministic(true), json.WithMarshalers(json.MarshalToFunc(finite))); again != nil {
		err = again
	}
	return newError("", nil, err)
}

// Equal reports whether a and b are the same text apart from white space and the way strings are escaped.
func Equal(a, b RawValue) bool {
	a, b = a.Clone(), b.Clone()
	return a.Compact() == nil && b.Compact() == nil && bytes.Equal(a, b)
}
