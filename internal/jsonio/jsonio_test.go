package jsonio

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type item struct {
	ID string  `json:"id"`
	KL float64 `json:"kl"`
}

type document struct {
	Format      string            `json:"format"`
	Bytes       int64             `json:"bytes"`
	Small       uint8             `json:"small,omitzero"`
	Items       []item            `json:"items"`
	Limit       *int64            `json:"limit,omitempty"`
	Sizes       map[string]int    `json:"sizes"`
	Own         *own              `json:"own,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
	Raw         RawValue          `json:"raw,omitempty"`
	Text        map[string]string `json:"text,omitempty"`
}

// own is a type that reads itself.
type own struct{ inner item }

func (o *own) UnmarshalJSON(b []byte) error { return Unmarshal("", b, &o.inner) }

func TestUnmarshal(t *testing.T) {
	const text = `{"format": "sb.test/1", "bytes": 9007199254740992, "items": [{"id": "a", "kl": 1e-7}],
		"limit": 0, "sizes": {"z": 1}, "annotations": {"b": null, "a": 9007199254740993}}`
	var got document
	if err := Unmarshal("doc.json", []byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := document{
		Format: "sb.test/1", Bytes: 1 << 53, Items: []item{{"a", 1e-7}}, Limit: new(int64),
		Sizes: map[string]int{"z": 1}, Annotations: map[string]any{"b": nil, "a": float64(1 << 53)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestErrors holds the text of every kind of error: what a user sees of a bad document.
func TestErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{``, `f.json:1:1: empty where a JSON value should be`},
		{" \n ", `f.json:2:2: empty where a JSON value should be`},
		{`{"bytes": 1`, `f.json:1:12: ends in the middle of a value`},
		{`{"bytes": 1} x`, `f.json:1:14: invalid character 'x' after top-level value`},
		{`{"bytes": 1} {}`, `f.json:1:14: invalid character '{' after top-level value`},
		{"{\n \"bytes\": ,\n}", `f.json:2:11: /bytes: invalid character ',' at start of value`},
		{`{"bytes": 01}`, `f.json:1:12: invalid character '1' after object value (expecting ',' or '}')`},
		{`{"bytes": NaN}`, `f.json:1:11: /bytes: invalid character 'N' at start of value`},
		{`[]`, `f.json: array where an object should be`},
		{`{"bytes": 1, "bytes": 1}`, `f.json:1:14: member "bytes" occurs twice`},
		{`{"annotations": {"a": 1, "a": 1}}`, `f.json:1:26: /annotations: member "a" occurs twice`},
		{`{"items": [{"id": "a"}, {"x": 1}]}`, `f.json: /items/1: unknown member "x"`},
		{`{"Bytes": 1}`, `f.json: unknown member "Bytes"`},
		{`{"bytes": "1"}`, `f.json: /bytes: string where an integer should be`},
		{`{"bytes": 1.5}`, `f.json: /bytes: number 1.5 where an integer should be`},
		{`{"bytes": 1e3}`, `f.json: /bytes: number 1e3 where an integer should be`},
		{`{"bytes": 99999999999999999999}`, `f.json: /bytes: number 99999999999999999999 is out of range`},
		{`{"bytes": 9007199254740993}`, `f.json: /bytes: integer 9007199254740993 is beyond 2^53, where readers round`},
		{`{"bytes": -9007199254740993}`, `f.json: /bytes: integer -9007199254740993 is beyond 2^53, where readers round`},
		{`{"small": 256}`, `f.json: /small: number 256 is out of range`},
		{`{"small": -1}`, `f.json: /small: number -1 where an integer not below 0 should be`},
		{`{"items": [{"kl": 1e999}]}`, `f.json: /items/0/kl: number 1e999 is out of range`},
		{`{"items": {}}`, `f.json: /items: object where an array should be`},
		{`{"items": null}`, `f.json: /items: null is not a value here, leave the member out`},
		{`{"limit": null}`, `f.json: /limit: null is not a value here, leave the member out`},
		{`{"sizes": {"a/b~c": "x"}}`, `f.json: /sizes/a~1b~0c: string where an integer should be`},
		{`{"own": {"kl": true}}`, `f.json: /own/kl: boolean where a number should be`},
		{"{\"format\": \"a\xff\"}", `f.json:1:14: /format: invalid UTF-8`},
		{`{"format": "\ud800"}`, "f.json:1:13: /format: invalid surrogate pair `\\ud800\"}` in string"},
	}
	for _, test := range tests {
		var v document
		err := Unmarshal("f.json", []byte(test.text), &v)
		if err == nil {
			t.Errorf("%s: accepted", test.text)
			continue
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%s: error of type %T", test.text, err)
		}
		if err.Error() != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.text, err, test.want)
		}
	}
}

func TestUnmarshalLoose(t *testing.T) {
	var v struct {
		N *int `json:"n"`
	}
	if err := UnmarshalLoose("config.json", []byte(`{"n": null, "unknown": 99999999999999999999}`), &v); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{"n": 1, "n": 2}`, "{\"x\": \"\xff\"}", `{"x": {"y": 1, "y": 2}}`, `{"n": 1} {}`, `{"n": 1.5}`} {
		if err := UnmarshalLoose("config.json", []byte(bad), &v); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func TestMarshal(t *testing.T) {
	v := document{
		Format: "<a&b>",
		Sizes:  map[string]int{"b": 2, "a": 1, "": 0},
		Raw:    RawValue(`{"z": 1.50,  "a": [null]}`),
		Text:   map[string]string{"\u2028": "é"},
	}
	// raw is not ours: its members keep their order, its numbers their digits
	v.Annotations = map[string]any{"raw": v.Raw}
	v.Raw = nil
	line, err := MarshalLine(v)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format":"<a&b>","bytes":0,"items":[],"sizes":{"":0,"a":1,"b":2},` +
		`"annotations":{"raw":{"z":1.50,"a":[null]}},"text":{"` + "\u2028" + `":"é"}}` + "\n"
	if string(line) != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
	indented, err := Marshal(struct {
		A []int    `json:"a"`
		B struct{} `json:"b"`
	}{A: []int{1, 2}})
	if want := "{\n \"a\": [\n  1,\n  2\n ],\n \"b\": {}\n}\n"; err != nil || string(indented) != want {
		t.Errorf("got %q, %v, want %q", indented, err, want)
	}
}

func TestMarshalErrors(t *testing.T) {
	type doc map[string]any
	tests := []struct {
		v    any
		want string
	}{
		{doc{"ops": []item{{}, {KL: math.NaN()}}}, `/ops/1/kl: NaN is not a value here, leave the member out`},
		{doc{"ops": []item{{}, {KL: math.Inf(-1)}}}, `/ops/1/kl: -Inf is not a value here, leave the member out`},
		{doc{"n": int64(1<<53 + 1)}, `/n: integer 9007199254740993 is beyond 2^53, where readers round`},
		{doc{"n": uint64(math.MaxUint64)}, `/n: integer 18446744073709551615 is beyond 2^53, where readers round`},
		{doc{"n": []any{1, int64(-1<<53 - 1)}}, `/n/1: integer -9007199254740993 is beyond 2^53, where readers round`},
		{doc{"n": nil}, `/n: null is not a value here, leave the member out`},
		{doc{"s": "\xff"}, `/s: invalid UTF-8`},
		{doc{"f": func() {}}, `/f: no JSON for the Go type func()`},
	}
	for _, test := range tests {
		b, err := Marshal(test.v)
		if err == nil {
			t.Errorf("%v: written as %s", test.v, b)
		} else if err.Error() != test.want {
			t.Errorf("got  %s\nwant %s", err, test.want)
		}
	}
	for _, ok := range []any{doc{"n": 1 << 53}, doc{"n": -1 << 53}, doc{"n": 1e300}, doc{"n": math.MaxFloat64},
		doc{"annotations": doc{"x": nil, "n": uint64(math.MaxUint64)}}} {
		if _, err := Marshal(ok); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
}

func TestNumbersRoundTrip(t *testing.T) {
	numbers := []float64{0, 1, -1, 0.1, 1e-7, 5e-324, math.MaxFloat64, 1.0 / 3, 123456789.123456789, 1e21, 1 << 53}
	b, err := Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	if err := Unmarshal("", b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(numbers, got); diff != "" {
		t.Error(diff)
	}
}

func TestErrorNames(t *testing.T) {
	err := Name("plan.json", Errorf("", "/ops/3", "op %q has no tier", "block_0.attn"))
	if want := `plan.json: /ops/3: op "block_0.attn" has no tier`; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
	if err := Name("other.json", err); strings.Contains(err.Error(), "other") {
		t.Errorf("a name was replaced: %s", err)
	}
	if Name("x", nil) != nil {
		t.Error("an error out of nothing")
	}
}

func TestEqual(t *testing.T) {
	if !Equal(RawValue(`{"a": [1, 2]}`), RawValue(`{"a":[1,2] }`)) {
		t.Error("white space made a difference")
	}
	if Equal(RawValue(`{"a":1}`), RawValue(`{"a":2}`)) || Equal(RawValue(`{`), RawValue(`{`)) {
		t.Error("unequal values are equal")
	}
}

// TestDepth: text that nests without end is an error, not the end of the stack.
func TestDepth(t *testing.T) {
	deep := []byte(strings.Repeat(`[{"annotations":`, 1_000_000))
	var v any
	if UnmarshalLoose("f.json", deep, &v) == nil || Unmarshal("f.json", deep, &v) == nil {
		t.Error("accepted")
	}
	if _, err := Elements("f.json", deep); err == nil {
		t.Error("accepted by Elements")
	}
	if _, err := readAny(NewReader("f.json", bytes.NewReader(deep))); err == nil {
		t.Error("accepted by Reader")
	}
}
