package trace

import (
	"io"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// maxLine bounds a line in bytes. The longest is run_start with its ledger.
const maxLine = 1 << 20

// A Reader reads a trace strictly: unknown types of lines, unknown members and
// a cut-off last line are errors.
type Reader struct {
	name string
	d    *jsonio.Decoder
}

// NewReader reads a trace from r. The name, usually the file's, starts every
// error.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, d: jsonio.NewDecoder(name, r, maxLine)}
}

// Next returns the next line as a pointer to one of the line types of package
// doc, with its head, or io.EOF.
func (r *Reader) Next() (line any, head *doc.TraceHead, err error) {
	if _, err := r.d.Next(); err != nil {
		return nil, nil, err
	}
	var kind struct {
		Type string `json:"type"`
	}
	if err := r.d.UnmarshalLoose(&kind); err != nil {
		return nil, nil, err
	}
	switch kind.Type {
	case doc.TraceRunStart:
		l := new(doc.RunStart)
		line, head = l, &l.TraceHead
	case doc.TraceToken:
		l := new(doc.TokenLine)
		line, head = l, &l.TraceHead
	case doc.TraceOp:
		l := new(doc.OpLine)
		line, head = l, &l.TraceHead
	case doc.TraceTier:
		l := new(doc.TierLine)
		line, head = l, &l.TraceHead
	case doc.TraceRead:
		l := new(doc.ReadLine)
		line, head = l, &l.TraceHead
	case doc.TraceSlot:
		l := new(doc.SlotLine)
		line, head = l, &l.TraceHead
	case doc.TraceSignal:
		l := new(doc.SignalLine)
		line, head = l, &l.TraceHead
	case doc.TraceFallback:
		l := new(doc.FallbackLine)
		line, head = l, &l.TraceHead
	case doc.TraceMemory:
		l := new(doc.MemoryLine)
		line, head = l, &l.TraceHead
	case doc.TraceRunEnd:
		l := new(doc.RunEnd)
		line, head = l, &l.TraceHead
	default:
		return nil, nil, r.Errorf("/type", "%q is no type of a trace line", kind.Type)
	}
	if err := r.d.Unmarshal(line); err != nil {
		return nil, nil, err
	}
	return line, head, nil
}

// Errorf makes an error of the current line.
func (r *Reader) Errorf(at jsonio.Pointer, format string, args ...any) error {
	e := jsonio.Errorf(r.name, at, format, args...)
	e.Line = r.d.Line()
	return e
}
