package jsonio

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/goccy/go-json/jsontext"
	json "github.com/goccy/go-json/v2"
)

// DefaultMaxLine is the greatest length in bytes of a record that a [Decoder] takes unless told otherwise.
const DefaultMaxLine = 1 << 20

var errTrailing = errors.New("something follows the value")

// Decoder reads a stream of records, one JSON value a line. A bad record is an error that leaves the next one readable.
type Decoder struct {
	name    string
	r       *bufio.Reader
	maxLine int
	line    []byte // the current record, without its line feed
	long    []byte // storage of a record longer than the reader's buffer
	lineNo  int
	err     error // error of the reader, final
}

// NewDecoder reads records of at most maxLine bytes ([DefaultMaxLine] if 0) from r. The name starts every error.
func NewDecoder(name string, r io.Reader, maxLine int) *Decoder {
	if maxLine <= 0 {
		maxLine = DefaultMaxLine
	}
	return &Decoder{name: name, r: bufio.NewReaderSize(r, 64<<10), maxLine: maxLine}
}

// Decode reads the next record into v as [Unmarshal] does, or returns [io.EOF] after the last one. After an [*Error] it
// goes on with the record after the bad one.
func (d *Decoder) Decode(v any) error {
	if _, err := d.Next(); err != nil {
		return err
	}
	return d.Unmarshal(v)
}

// Next goes to the next record and returns its text, valid until the next call, or [io.EOF]. Whether the text is JSON
// is not looked at before Unmarshal.
func (d *Decoder) Next() ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	d.lineNo++
	d.line = nil
	line, err := d.readLine()
	switch {
	case err == io.EOF && len(line) == 0:
		d.err = io.EOF
		return nil, io.EOF
	case err == io.EOF:
		d.err = io.EOF
		return nil, d.fault("the last line is cut off: no line feed ends it")
	case err == errLong:
		return nil, d.fault(fmt.Sprintf("line of more than %d bytes", d.maxLine))
	case err != nil:
		d.err = fmt.Errorf("%s:%d: %w", d.name, d.lineNo, err)
		return nil, d.err
	case len(bytes.TrimSpace(line)) == 0:
		return nil, d.fault("empty line")
	}
	d.line = line
	return line, nil
}

// Unmarshal reads the current record into v.
func (d *Decoder) Unmarshal(v any) error {
	return d.place(Unmarshal(d.name, d.line, v))
}

// UnmarshalLoose reads the current record into v, without what v does not know: for a first look at a member that says
// what the record is.
func (d *Decoder) UnmarshalLoose(v any) error {
	return d.place(UnmarshalLoose(d.name, d.line, v))
}

// Line is the number of the current record's line, from 1.
func (d *Decoder) Line() int { return d.lineNo }

var errLong = errors.New("line too long")

// readLine reads up to the next line feed, which it drops. A line that is too long is skipped whole.
func (d *Decoder) readLine() ([]byte, error) {
	part, err := d.r.ReadSlice('\n')
	line := part
	if err == bufio.ErrBufferFull {
		d.long = d.long[:0]
		for err == bufio.ErrBufferFull {
			if len(d.long) <= d.maxLine {
				d.long = append(d.long, part...)
			}
			part, err = d.r.ReadSlice('\n')
		}
		if len(d.long) <= d.maxLine {
			d.long = append(d.long, part...)
		}
		line = d.long
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err == nil {
		line = bytes.TrimSuffix(line, []byte("\n"))
	}
	if len(line) > d.maxLine {
		return nil, errLong
	}
	return line, err
}

func (d *Decoder) fault(reason string) error {
	return &Error{File: d.name, Line: d.lineNo, Reason: reason}
}

// place gives an error of the current record its line.
func (d *Decoder) place(err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.Line, e.Column = d.lineNo, 0
	}
	return err
}

// Encoder writes a stream of records, one JSON value a line, each with one call of Write.
type Encoder struct {
	w   io.Writer
	buf bytes.Buffer
	enc *jsontext.Encoder
	err error // first error of w, final
}

// NewEncoder writes records to w. Whether and when w is flushed is up to the caller.
func NewEncoder(w io.Writer) *Encoder {
	e := &Encoder{w: w}
	e.enc = jsontext.NewEncoder(&e.buf, json.Deterministic(true))
	return e
}

// Encode writes v and a line feed. A value that cannot be written leaves nothing behind, and the next one can follow.
// An error of the writer is final.
func (e *Encoder) Encode(v any) error {
	if e.err != nil {
		return e.err
	}
	e.buf.Reset()
	if err := json.MarshalEncode(e.enc, v); err != nil {
		e.enc.Reset(&e.buf, json.Deterministic(true))
		return writeError(v, err)
	}
	if err := check("", e.buf.Bytes()); err != nil {
		return err
	}
	_, e.err = e.w.Write(e.buf.Bytes())
	return e.err
}
