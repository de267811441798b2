package jsonio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// readAny reads a document through a Reader into what encoding/json would make of it.
func readAny(r *Reader) (any, error) {
	switch r.Kind() {
	case '{':
		m := map[string]any{}
		err := r.Object(func(name []byte) error {
			key := string(name) // before the value is read: objects in it have names too
			v, err := readAny(r)
			m[key] = v
			return err
		})
		return m, err
	case '[':
		a := []any{}
		err := r.Array(func() error {
			v, err := readAny(r)
			a = append(a, v)
			return err
		})
		return a, err
	case '"':
		b, err := r.AppendString(nil)
		return string(b), err
	}
	var v any
	err := r.Unmarshal(&v)
	return v, err
}

// FuzzReader compares with UnmarshalLoose.
func FuzzReader(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want any
		loose := UnmarshalLoose("f.json", b, &want)
		r := NewReader("f.json", iotest.HalfReader(bytes.NewReader(b)))
		got, err := readAny(r)
		if err == nil {
			err = r.End()
		}
		if loose == nil && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%q is %#v, %v, not %#v", b, got, err, want)
		}
		if loose != nil && err == nil && !strings.Contains(loose.Error(), "twice") {
			t.Fatalf("%q accepted: %v", b, loose)
		}
	})
}

func TestReader(t *testing.T) {
	const text = `{"version": "1.0", "skip": {"a": [1, {}]}, "vocab": {"a": 0, "\u0062": 1}, "merges": ["a b", ["c", "d"]], "n": {"x": 1}}`
	r := NewReader("t.json", iotest.OneByteReader(strings.NewReader(text)))
	var got []string
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "skip":
			return r.Skip()
		case "vocab":
			return r.Object(func(name []byte) error {
				token := string(name)
				id, err := r.Integer()
				got = append(got, fmt.Sprintf("%s=%d", token, id))
				return err
			})
		case "merges":
			return r.Array(func() error {
				v, err := r.Value()
				got = append(got, string(v))
				return err
			})
		case "n":
			var n struct{ X int }
			return r.Unmarshal(&n)
		}
		b, err := r.AppendString([]byte("version "))
		got = append(got, string(b))
		return err
	})
	if err == nil {
		err = r.End()
	}
	want := []string{"version 1.0", "a=0", "b=1", `"a b"`, `["c", "d"]`}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestReaderErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                      "t.json: ends in the middle of a value at byte 0",
		`[]`:                    "t.json: array where an object should be",
		`{"vocab": []}`:         "t.json: /vocab: array where an object should be",
		`{"vocab": {"a": 1.5}}`: "t.json: /vocab/a: 1.5 where an integer should be",
		`{"vocab": {"a": "b"}}`: "t.json: /vocab/a: string where a number should be",
		`{"vocab": {"a": 1`:     "t.json: /vocab: ends in the middle of a value",
		`{"vocab": {"a" 1}}`:    "t.json: /vocab/a: invalid character '1' after object name (expecting ':')",
		`{"vocab": {}} x`:       "t.json: invalid character 'x' at start of value at byte 14",
	} {
		r := NewReader("t.json", strings.NewReader(text))
		err := r.Object(func([]byte) error {
			return r.Object(func([]byte) error {
				_, err := r.Integer()
				return err
			})
		})
		if err == nil {
			err = r.End()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestReaderReadError: that the file cannot be read is not the document's fault.
func TestReaderReadError(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, start := range []string{``, `{"a`, `{"a": `, `{"a": "b`, `{"a": 1,`, `{"a": [{"b": `} {
		_, err := readAny(NewReader("t.json", io.MultiReader(strings.NewReader(start), iotest.ErrReader(broken))))
		if _, document := errors.AsType[*Error](err); document || !errors.Is(err, broken) {
			t.Errorf("after %q: %v", start, err)
		}
	}
}

func TestWithin(t *testing.T) {
	inner := UnmarshalLoose("", []byte(`{"a": "x"}`), &struct{ A int }{})
	for _, test := range []struct {
		err  error
		want string
	}{
		{UnmarshalKnown("", []byte(`{"b": 1}`), &struct{}{}), `t.json: /model: unknown member "b"`},
		{Errorf("", "/a", "x"), "t.json: /model/a: x"},
		{Errorf("u.json", "/a", "x"), "u.json: /model/a: x"},
		{fmt.Errorf("plain"), "t.json: /model: plain"},
	} {
		if err := Within("t.json", "/model", test.err); err.Error() != test.want {
			t.Errorf("got %s, want %s", err, test.want)
		}
	}
	if inner != nil || Within("t.json", "/model", nil) != nil {
		t.Errorf("an error out of nothing: %v", inner)
	}
}

func TestCompact(t *testing.T) {
	got, err := Compact(RawValue(` {"a" : [1.50, "\u0041\/"], "b":{} } `))
	if want := `{"a":[1.50,"A/"],"b":{}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := Compact(RawValue(`{"a"`)); err == nil {
		t.Error("cut off text accepted")
	}
	quoted, err := AppendString([]byte("x"), "a\"\n\x01é<")
	if want := `x"a\"\n\u0001é<"`; err != nil || string(quoted) != want {
		t.Errorf("got %s, %v, want %s", quoted, err, want)
	}
	if _, err := AppendString(nil, "\xff"); err == nil {
		t.Error("invalid UTF-8 accepted")
	}
}
