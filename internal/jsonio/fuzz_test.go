package jsonio

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

var seeds = []string{
	``, ` `, `null`, `true`, `0`, `-0`, `1e5`, `"a"`, `[]`, `{}`, `[1,[2,{"a":[]}],"x"]`,
	`{"format":"sb.test/1","bytes":9007199254740993,"items":[{"id":"a","kl":0.25},{"id":"b","kl":1e-7}],"sizes":{"z":1,"a":2}}`,
	`{"bytes":1,"bytes":2}`, `{"Bytes":1}`, `{"items":null}`, `{"annotations":{"a":null,"n":9007199254740993}}`,
	`{"a":{"annotations":[null]},"b":12345678901234567.5,"c":"null 12345678901234567"}`,
	`"\u00e9\ud83d\ude00\ud800"`, "\"\xff\"", `{"a":1}{"b":2}`, `[1,2`, `{"a" 1}`, "\ufeff{}", `1e999`, `[-9007199254740992,9007199254740992]`,
	strings.Repeat("[", 500) + strings.Repeat("]", 500), `{"":{"":0}}`, `[0.12345678901234567890,true,false]`,
}

// FuzzUnmarshal compares with encoding/json: what is accepted here is accepted there, with the same meaning.
func FuzzUnmarshal(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want document
		if Unmarshal("f.json", b, &got) != nil {
			return
		}
		d := stdjson.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("%q accepted, but encoding/json says %v", b, err)
		}
		if !utf8.Valid(b) {
			t.Fatalf("%q accepted", b)
		}
		got.Raw, want.Raw = RawValue(compact(t, got.Raw)), RawValue(compact(t, want.Raw))
		got.Own, want.Own = nil, nil // reads itself with this package
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n is %#v\nnot %#v", b, got, want)
		}
		written, err := Marshal(got)
		if err != nil {
			return // an int64 beyond 2^53 under annotations, say
		}
		again, err := Marshal(got)
		if err != nil || !bytes.Equal(written, again) {
			t.Fatalf("written as %s and as %s, %v", written, again, err)
		}
	})
}

func compact(t *testing.T, raw RawValue) []byte {
	if len(raw) == 0 {
		return nil
	}
	var buf bytes.Buffer
	if err := stdjson.Compact(&buf, raw); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// FuzzLoose compares with encoding/json, which lets duplicate names and bad text pass: apart from these both accept the
// same texts and read the same values.
func FuzzLoose(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want any
		err := UnmarshalLoose("f.json", b, &got)
		std := stdjson.Unmarshal(b, &want)
		if err == nil && std != nil {
			t.Fatalf("%q accepted, but encoding/json says %v", b, std)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is %#v, not %#v", b, got, want)
		}
		if err != nil && std == nil && utf8.Valid(b) && !hasDuplicates(b) && !bytes.Contains(b, []byte(`\u`)) {
			t.Fatalf("%q refused: %v", b, err)
		}
	})
}

// hasDuplicates reports whether an object in valid JSON has a name twice.
func hasDuplicates(b []byte) bool {
	d := stdjson.NewDecoder(bytes.NewReader(b))
	var value func() bool
	value = func() bool {
		tok, _ := d.Token()
		switch tok {
		case stdjson.Delim('['):
			for d.More() {
				if value() {
					return true
				}
			}
			d.Token()
		case stdjson.Delim('{'):
			seen := map[any]bool{}
			for d.More() {
				name, _ := d.Token()
				if seen[name] || value() {
					return true
				}
				seen[name] = true
			}
			d.Token()
		}
		return false
	}
	return value()
}

// FuzzCheck compares check's short cut with the walk over the tokens.
func FuzzCheck(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !RawValue(b).IsValid() {
			return
		}
		if fast, slow := check("", b), walk("", b); (fast == nil) != (slow == nil) {
			t.Fatalf("%q: %v, but token by token %v", b, fast, slow)
		}
	})
}

// FuzzMembers compares with the tokens of encoding/json.
func FuzzMembers(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if members, err := Members("f.json", b); err == nil {
			var want map[string]stdjson.RawMessage
			if err := stdjson.Unmarshal(b, &want); err != nil {
				t.Fatalf("%q accepted, but encoding/json says %v", b, err)
			}
			if len(members) != len(want) {
				t.Fatalf("%q has %d members, not %d", b, len(members), len(want))
			}
			rest := b
			for _, m := range members {
				if !bytes.Equal(m.Value, want[m.Name]) {
					t.Fatalf("%q: member %q is %q, not %q", b, m.Name, m.Value, want[m.Name])
				}
				_, after, ok := bytes.Cut(rest, m.Value)
				if !ok {
					t.Fatalf("%q: member %q is not in its place", b, m.Name)
				}
				rest = after
			}
		}
		if elements, err := Elements("f.json", b); err == nil {
			var want []stdjson.RawMessage
			if err := stdjson.Unmarshal(b, &want); err != nil || len(elements) != len(want) {
				t.Fatalf("%q has %d elements, encoding/json says %d, %v", b, len(elements), len(want), err)
			}
			for i := range want {
				if !bytes.Equal(elements[i], want[i]) {
					t.Fatalf("%q: element %d is %q, not %q", b, i, elements[i], want[i])
				}
			}
		}
	})
}

// FuzzDecoder compares the lines that a Decoder sees with those of bytes.Split, read in pieces of any size.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n{\"a\":2}\n"), uint8(3), uint8(20))
	f.Add([]byte("\n\n{}\r\n{\"a\":"), uint8(1), uint8(5))
	f.Add([]byte("xxxxxxxxxxxxxxxxxxxxxxxxxxxx\n{}\n"), uint8(7), uint8(10))
	f.Fuzz(func(t *testing.T, b []byte, step, most uint8) {
		if most == 0 {
			most = 1
		}
		d := NewDecoder("f.jsonl", &stepReader{b, int(step)}, int(most))
		lines := bytes.SplitAfter(b, []byte("\n"))
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1]
		}
		for i, want := range lines {
			got, err := d.Next()
			text, ended := bytes.CutSuffix(want, []byte("\n"))
			ok := ended && len(text) <= int(most) && len(bytes.TrimSpace(text)) > 0
			if ok != (err == nil) || ok && !bytes.Equal(got, text) {
				t.Fatalf("line %d of %q is %q, %v", i+1, b, got, err)
			}
			if d.Line() != i+1 {
				t.Fatalf("line %d is said to be %d", i+1, d.Line())
			}
			if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || e.Line != i+1) {
				t.Fatalf("line %d: error %v", i+1, err)
			}
			if err == nil {
				var v any
				if got, want := d.UnmarshalLoose(&v), UnmarshalLoose("", text, &v); (got == nil) != (want == nil) {
					t.Fatalf("line %d: %v, not %v", i+1, got, want)
				}
			}
		}
		if _, err := d.Next(); err != io.EOF {
			t.Fatalf("after the last line: %v", err)
		}
	})
}

// stepReader gives a few bytes at a time.
type stepReader struct {
	b    []byte
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(r.b), max(r.step, 1))
	copy(p, r.b[:n])
	r.b = r.b[n:]
	return n, nil
}
