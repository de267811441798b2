package doc

import (
	"substrate/internal/jsonio"
)

// A Document is one of the JSON documents of this package.
type Document interface {
	// Validate returns nil, or an error that names the first thing wrong as a
	// JSON pointer and in words.
	Validate() error
	// formats returns the format the document says it has and the one that
	// its type is.
	formats() (got, want string)
}

func (p *Profile) formats() (string, string)     { return p.Format, FormatProfile }
func (t *Table) formats() (string, string)       { return t.Format, FormatTable }
func (m *Machine) formats() (string, string)     { return m.Format, FormatMachine }
func (p *Plan) formats() (string, string)        { return p.Format, FormatPlan }
func (p *Policy) formats() (string, string)      { return p.Format, FormatPolicy }
func (f *Feasibility) formats() (string, string) { return f.Format, FormatFeasibility }
func (p *CurvePoint) formats() (string, string)  { return p.Format, FormatCurve }
func (m *Manifest) formats() (string, string)    { return m.Format, FormatStore }
func (p *Packed) formats() (string, string)      { return p.Format, FormatPacked }

// Read reads and validates one document, as in doc.Read[doc.Plan](name, b).
// The name starts every error. Unknown members and versions are errors.
func Read[T any, P interface {
	*T
	Document
}](name string, b []byte) (*T, error) {
	// The format is looked at first: a document of another kind or version
	// should not be refused for the members it has.
	var head struct {
		Format string `json:"format"`
	}
	if err := jsonio.UnmarshalLoose(name, b, &head); err != nil {
		return nil, err
	}
	d := P(new(T))
	_, want := d.formats()
	if err := jsonio.Name(name, CheckFormat(head.Format, want)); err != nil {
		return nil, err
	}
	if err := jsonio.Unmarshal(name, b, d); err != nil {
		return nil, err
	}
	if err := d.Validate(); err != nil {
		return nil, jsonio.Name(name, err)
	}
	return (*T)(d), nil
}

// Format returns the format that a document of b says it has, "" if none.
func Format(name string, b []byte) (string, error) {
	var head struct {
		Format string `json:"format"`
	}
	err := jsonio.UnmarshalLoose(name, b, &head)
	return head.Format, err
}

// Write validates a document and returns its text: indented, with a line feed
// at its end, the same bytes for the same document.
func Write(d Document) ([]byte, error) {
	if err := validateWhole(d); err != nil {
		return nil, err
	}
	return jsonio.Marshal(d)
}

// WriteLine is Write on one line, for streams.
func WriteLine(d Document) ([]byte, error) {
	if err := validateWhole(d); err != nil {
		return nil, err
	}
	return jsonio.MarshalLine(d)
}

func validateWhole(d Document) error {
	got, want := d.formats()
	if err := CheckFormat(got, want); err != nil {
		return err
	}
	return d.Validate()
}
