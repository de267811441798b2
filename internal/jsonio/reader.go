package jsonio

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/goccy/go-json/jsontext"
)

// Reader reads one large document that others made value by value, in the order of the text: a tokenizer.json of 30 MB
// takes a buffer of some KB. Every method that reads takes exactly the next value. Errors as for [UnmarshalLoose], but for
// duplicate names, which a Reader does not see: it would have to remember them all.
type Reader struct {
	name   string
	d      *jsontext.Decoder
	in     *input
	member []byte
}

// input remembers why reading failed: the decoder reports that as a fault of the text if it is in the middle of a value.
type input struct {
	io.Reader
	err error
}

func (in *input) Read(b []byte) (int, error) {
	n, err := in.Reader.Read(b)
	if err != io.EOF {
		in.err = err
	}
	return n, err
}

// NewReader reads the document r; the name, usually the file's, starts every error.
func NewReader(name string, r io.Reader) *Reader {
	in := &input{Reader: r}
	return &Reader{name: name, d: jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true)), in: in}
}

// Kind tells the next value: 'n' null, 't' or 'f' boolean, '"' string, '0' number, '{' object, '[' array. It is another
// byte where no value is, which the method that reads it reports.
func (r *Reader) Kind() byte { return byte(r.d.PeekKind()) }

// Object reads an object. It calls member for every member, in order, with its name; member reads the value, exactly one.
// The name is valid until the next name is read.
func (r *Reader) Object(member func(name []byte) error) error {
	if err := r.open('{'); err != nil {
		return err
	}
	for r.d.PeekKind() != '}' {
		quoted, err := r.d.ReadValue()
		if err != nil {
			return r.fault(err)
		}
		if r.member, err = jsontext.AppendUnquote(r.member[:0], quoted); err != nil {
			return r.fault(err)
		}
		if err := member(r.member); err != nil {
			return err
		}
	}
	_, err := r.d.ReadToken()
	return r.fault(err)
}

// Array reads an array. It calls element for every element, in order; element reads it.
func (r *Reader) Array(element func() error) error {
	if err := r.open('['); err != nil {
		return err
	}
	for r.d.PeekKind() != ']' {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := r.d.ReadToken()
	return r.fault(err)
}

// AppendString reads a string and appends it to dst.
func (r *Reader) AppendString(dst []byte) ([]byte, error) {
	quoted, err := r.value('"')
	if err != nil {
		return dst, err
	}
	dst, err = jsontext.AppendUnquote(dst, quoted)
	return dst, r.fault(err)
}

// Integer reads an integer.
func (r *Reader) Integer() (int64, error) {
	b, err := r.value('0')
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0, r.Errorf("%s where an integer should be", b)
	}
	return n, nil
}

// Unmarshal reads a value into v as [UnmarshalLoose] does.
func (r *Reader) Unmarshal(v any) error {
	b, err := r.Value()
	if err != nil {
		return err
	}
	at := r.d.StackPointer()
	return Within(r.name, at, UnmarshalLoose(r.name, b, v))
}

// Value reads a value of any kind and returns a copy of its text.
func (r *Reader) Value() (RawValue, error) {
	b, err := r.d.ReadValue()
	return bytes.Clone(b), r.fault(err)
}

// Skip reads a value and forgets it.
func (r *Reader) Skip() error { return r.fault(r.d.SkipValue()) }

// End checks that nothing follows the document.
func (r *Reader) End() error {
	_, err := r.d.ReadToken()
	switch err {
	case io.EOF:
		return nil
	case nil:
		err = &jsontext.SyntacticError{ByteOffset: r.d.InputOffset(), Err: errTrailing}
	}
	return r.fault(err)
}

// Errorf makes the error of the value that was read last.
func (r *Reader) Errorf(format string, args ...any) error {
	e := Errorf(r.name, r.d.StackPointer(), format, args...)
	e.Offset = r.d.InputOffset()
	return e
}

// open reads the start of an object or an array.
func (r *Reader) open(want jsontext.Kind) error {
	if kind := r.d.PeekKind(); kind != want && kind > 0 {
		return r.Errorf("%s where %s should be", kindName(kind), withArticle(want))
	}
	_, err := r.d.ReadToken()
	return r.fault(err)
}

// value reads the text of a value of the wanted kind, valid until the next read.
func (r *Reader) value(want jsontext.Kind) (RawValue, error) {
	if kind := r.d.PeekKind(); kind != want && kind > 0 {
		return nil, r.Errorf("%s where %s should be", kindName(kind), withArticle(want))
	}
	b, err := r.d.ReadValue()
	return b, r.fault(err)
}

// fault translates an error of the decoder.
func (r *Reader) fault(err error) error {
	if err == nil {
		return nil
	}
	if err == io.EOF { // the text ends where a value should start
		err = &jsontext.SyntacticError{ByteOffset: r.d.InputOffset(), Err: io.ErrUnexpectedEOF}
	}
	if r.in.err != nil { // no fault of the document
		return fmt.Errorf("%s: %w", r.name, r.in.err)
	}
	err = newError(r.name, nil, err)
	if e := err.(*Error); e.Pointer == "" {
		e.Reason += " at byte " + strconv.FormatInt(e.Offset, 10) // there is no text to count lines in
	}
	return err
}
