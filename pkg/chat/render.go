package chat

import (
	"maps"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Bounds of a rendering.
const (
	maxRounds      = 1_000_000 // of all loops
	maxCallDepth   = 100       // of macros
	maxRange       = 100_000
	maxStringBytes = 16 << 20
	maxOutputBytes = 64 << 20
)

// rendering is the state of one call of Render: what the functions of a
// translation count.
type rendering struct {
	date   time.Time
	rounds int
	depth  int
	output int
}

// define adds the functions of a translation, and Python's own in place of
// those of the engine that differ.
func (r *rendering) define(values map[string]jinja.Value) {
	for name, f := range map[string]function{
		"round": r.round, "enter": r.enter, "leave": r.leave, "print": r.print, "value": r.value,
	} {
		values[prefix+name] = f.named(name)
	}
	for name, f := range map[string]function{"range": pyRange, "raise_exception": raise, "strftime_now": r.strftime} {
		values[name] = f.named(name)
	}
	maps.Copy(values, library())
}

// library is the filters, methods and tests that translations know.
func library() map[string]jinja.Value {
	values := map[string]jinja.Value{}
	for name, f := range filters() {
		values[prefix+name] = f.named("the filter " + name)
	}
	for name, f := range methods() {
		values[prefix+"do_"+name] = f.named("the method " + name)
	}
	for name, test := range tests() {
		values[prefix+"is_"+name] = test.function(true).named("the test " + name)
		values[prefix+"isnot_"+name] = test.function(false).named("the test " + name)
	}
	return values
}

// function is what a template calls.
type function func(a arguments) (jinja.Value, error)

func (f function) named(name string) jinja.Value {
	return jinja.NewCallable(name, func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
		return f(arguments{name, args, kwargs})
	})
}

// arguments are those of one call.
type arguments struct {
	name   string
	list   []jinja.Value
	byName map[string]jinja.Value
}

// at is the argument at a place or of a name, undefined if it is not given.
func (a arguments) at(i int, name string) jinja.Value {
	if i < len(a.list) {
		return a.list[i]
	}
	return a.byName[name]
}

// texts are the arguments, at least least and at most most strings.
func (a arguments) texts(least, most int) ([]string, error) {
	if len(a.list) < least || len(a.list) > most || len(a.byName) > 0 {
		return nil, a.refuse()
	}
	list := make([]string, len(a.list))
	for i, v := range a.list {
		if !v.IsString() {
			return nil, a.refuse()
		}
		list[i] = v.AsString()
	}
	return list, nil
}

// refuse is the error of arguments that a function does not take.
func (a arguments) refuse() error {
	return unsupported(0, "%s, used in a way that this program does not know", a.name)
}

func (r *rendering) round(arguments) (jinja.Value, error) {
	if r.rounds++; r.rounds > maxRounds {
		return jinja.None(), unsupported(0, "loops of more than %d rounds", maxRounds)
	}
	return jinja.NewString(""), nil
}

func (r *rendering) enter(arguments) (jinja.Value, error) {
	if r.depth++; r.depth > maxCallDepth {
		return jinja.None(), unsupported(0, "macros that call each other more than %d deep", maxCallDepth)
	}
	return jinja.NewString(""), nil
}

func (r *rendering) leave(arguments) (jinja.Value, error) {
	r.depth--
	return jinja.NewString(""), nil
}

// print is {{ x }}.
func (r *rendering) print(a arguments) (jinja.Value, error) {
	if len(a.list) != 1 || len(a.byName) > 0 {
		return jinja.None(), a.refuse()
	}
	s, err := text(a.list[0])
	if r.output += len(s); err == nil && r.output > maxOutputBytes {
		err = unsupported(0, "an output of more than %d bytes", maxOutputBytes)
	}
	return jinja.NewString(s), err
}

// value is the value of an assignment.
func (r *rendering) value(a arguments) (jinja.Value, error) {
	switch {
	case len(a.list) != 1 || len(a.byName) > 0:
		return jinja.None(), a.refuse()
	case a.list[0].IsString() && len(a.list[0].AsString()) > maxStringBytes:
		return jinja.None(), unsupported(0, "a string of more than %d bytes", maxStringBytes)
	}
	return a.list[0], nil
}

// text is str(v) of Python, as far as prompts print it.
func text(v jinja.Value) (string, error) {
	switch {
	case v.IsString():
		return v.AsString(), nil
	case v.IsUndefined():
		return "", nil
	case v.IsNone(), v.IsBool(), v.IsInt():
		return v.String(), nil
	}
	return "", unsupported(0, "a print of a list or a mapping")
}

func raise(a arguments) (jinja.Value, error) {
	s, err := text(a.at(0, "message"))
	if err != nil {
		return jinja.None(), err
	}
	return jinja.None(), &RaisedError{strings.TrimSpace(s)}
}

func pyRange(a arguments) (jinja.Value, error) {
	bounds := [3]int64{0, 0, 1}
	for i, v := range a.list {
		if i > 2 || !v.IsInt() {
			return jinja.None(), a.refuse()
		}
		bounds[i] = v.AsInt()
	}
	if len(a.list) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if len(a.list) == 0 || step == 0 || len(a.byName) > 0 {
		return jinja.None(), a.refuse()
	}
	var items []jinja.Value
	for n := start; step > 0 && n < stop || step < 0 && n > stop; n += step {
		if len(items) == maxRange {
			return jinja.None(), unsupported(0, "a range of more than %d numbers", maxRange)
		}
		items = append(items, jinja.NewInt(n))
	}
	return jinja.NewList(items), nil
}

// strftime is strftime_now of transformers, in the C locale.
func (r *rendering) strftime(a arguments) (jinja.Value, error) {
	format := a.at(0, "format")
	if !format.IsString() {
		return jinja.None(), a.refuse()
	}
	if r.date.IsZero() {
		return jinja.None(), unsupported(0, "the date of today in it, and none was given")
	}
	s, ok := strftime(r.date, format.AsString())
	if !ok {
		return jinja.None(), unsupported(0, "the date format %q", format.AsString())
	}
	return jinja.NewString(s), nil
}

// strftime formats a time as Python does in the C locale; false if it does not
// know the format.
func strftime(t time.Time, format string) (string, bool) {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
		'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			return "", false
		}
		layout, ok := layouts[format[i]]
		switch {
		case ok:
			b.WriteString(t.Format(layout))
		case format[i] == '%':
			b.WriteByte('%')
		default:
			return "", false
		}
	}
	return b.String(), true
}
