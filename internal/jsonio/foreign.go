package jsonio

import (
	"bytes"
	"io"

	"github.com/goccy/go-json/jsontext"
)

// Member is a member of an object, its value as text.
type Member struct {
	Name  string
	Value RawValue // part of the text that was read, not a copy
}

// Members splits an object into its members, in their order. Errors as for [UnmarshalLoose].
func Members(name string, b []byte) ([]Member, error) {
	var members []Member
	err := split(name, b, '{', '}', func(d *jsontext.Decoder) error {
		tok, err := d.ReadToken()
		if err != nil {
			return err
		}
		member := tok.String()
		value, err := readValue(d, b)
		members = append(members, Member{member, value})
		return err
	})
	if err != nil {
		return nil, err
	}
	return members, nil
}

// Elements splits an array into its elements. Errors as for [UnmarshalLoose].
func Elements(name string, b []byte) ([]RawValue, error) {
	var elements []RawValue
	err := split(name, b, '[', ']', func(d *jsontext.Decoder) error {
		value, err := readValue(d, b)
		elements = append(elements, value)
		return err
	})
	if err != nil {
		return nil, err
	}
	return elements, nil
}

// split reads b, an object or array, and calls child at the start of every member or element.
func split(name string, b []byte, open, end jsontext.Kind, child func(*jsontext.Decoder) error) error {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	tok, err := d.ReadToken()
	if err == io.EOF {
		err = &jsontext.SyntacticError{Err: io.ErrUnexpectedEOF}
	}
	if err != nil {
		return newError(name, b, err)
	}
	if tok.Kind() != open {
		return &Error{File: name, Reason: kindName(tok.Kind()) + " where " + withArticle(open) + " should be"}
	}
	for d.PeekKind() != end {
		if err := child(d); err != nil {
			return newError(name, b, err)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return newError(name, b, err)
	}
	if _, err := d.ReadToken(); err != io.EOF {
		if err == nil {
			err = &jsontext.SyntacticError{ByteOffset: d.InputOffset(), Err: errTrailing}
		}
		return newError(name, b, err)
	}
	return nil
}

// readValue reads the next value of d as a part of b, the whole text that d reads.
func readValue(d *jsontext.Decoder, b []byte) (RawValue, error) {
	v, err := d.ReadValue()
	end := d.InputOffset()
	if err != nil {
		return nil, err
	}
	return b[end-int64(len(v)) : end : end], nil
}

// AppendString appends s to dst as a JSON string. Invalid UTF-8 is an error.
func AppendString[T ~string | ~[]byte](dst []byte, s T) ([]byte, error) {
	dst, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		return dst, newError("", nil, err)
	}
	return dst, nil
}

// Compact removes the white space around the tokens of a JSON value and writes its strings in their shortest form.
func Compact(b RawValue) (RawValue, error) {
	b = b.Clone()
	if err := b.Compact(jsontext.PreserveRawStrings(false)); err != nil {
		return nil, newError("", nil, err)
	}
	return b, nil
}
