package jsonio

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

type record struct {
	Type string `json:"type"`
	N    int    `json:"n"`
}

func TestDecoder(t *testing.T) {
	text := `{"type":"a","n":1}` + "\n" +
		`{"type":"a","n":"x"}` + "\n" + // wrong type
		"\n" +
		`{"type":"a","n":4}` + "\r\n" +
		`{"type":"` + strings.Repeat("b", 200_000) + `","n":5}` + "\n" + // longer than the buffer, short enough
		`{"type":"` + strings.Repeat("b", 400_000) + `","n":6}` + "\n" + // too long
		`not JSON` + "\n" +
		`{"type":"a","n":8,"m":0}` + "\n" +
		`{"type":"a","n":9} {}` + "\n" +
		`{"type":"a","n":10}` + "\n" +
		`{"type":"a","n":`
	want := []string{
		"1",
		"t.jsonl:2: /n: string where an integer should be",
		"t.jsonl:3: empty line",
		"4",
		"5",
		"t.jsonl:6: line of more than 300000 bytes",
		"t.jsonl:7: invalid character 'o' in literal null (expecting 'u')",
		`t.jsonl:8: unknown member "m"`,
		"t.jsonl:9: invalid character '{' after top-level value",
		"10",
		"t.jsonl:11: the last line is cut off: no line feed ends it",
		"EOF",
		"EOF",
	}
	for name, r := range map[string]io.Reader{
		"whole":       strings.NewReader(text),
		"byte":        iotest.OneByteReader(strings.NewReader(text)),
		"half":        iotest.HalfReader(strings.NewReader(text)),
		"data at EOF": iotest.DataErrReader(strings.NewReader(text)),
	} {
		d := NewDecoder("t.jsonl", r, 300_000)
		for i, want := range want {
			var v record
			got := ""
			if err := d.Decode(&v); err != nil {
				got = err.Error()
			} else {
				got = fmt.Sprint(v.N)
			}
			if got != want {
				t.Errorf("%s: record %d: got %s, want %s", name, i+1, got, want)
			}
		}
	}
}

func TestDecoderReadError(t *testing.T) {
	broken := errors.New("disk on fire")
	d := NewDecoder("t.jsonl", io.MultiReader(strings.NewReader("{\"n\":1}\n{\"n\""), iotest.ErrReader(broken)), 0)
	var v record
	if err := d.Decode(&v); err != nil || v.N != 1 {
		t.Fatal(err, v)
	}
	for range 2 {
		err := d.Decode(&v)
		if !errors.Is(err, broken) || err.Error() != "t.jsonl:2: disk on fire" {
			t.Errorf("got %v", err)
		}
		if _, ok := errors.AsType[*Error](err); ok {
			t.Error("an error of the reader is reported as one of the document")
		}
	}
}

// TestDecoderFirstLook reads a record twice: what it is, then all of it.
func TestDecoderFirstLook(t *testing.T) {
	d := NewDecoder("t.jsonl", strings.NewReader(`{"type":"a","n":1}`+"\n"), 0)
	if _, err := d.Next(); err != nil {
		t.Fatal(err)
	}
	var head struct {
		Type string `json:"type"`
	}
	var v record
	if err := d.UnmarshalLoose(&head); err != nil || head.Type != "a" {
		t.Error(err, head)
	}
	if err := d.Unmarshal(&v); err != nil || v.N != 1 {
		t.Error(err, v)
	}
}

func TestEncoder(t *testing.T) {
	var out strings.Builder
	writes := 0
	e := NewEncoder(writerFunc(func(p []byte) (int, error) {
		writes++
		return out.Write(p)
	}))
	good := []any{record{"a", 1}, map[string]int{"b": 1, "a": 2}, []record(nil)}
	for _, v := range good {
		if err := e.Encode(v); err != nil {
			t.Error(err)
		}
		if err := e.Encode(int64(1 << 60)); err == nil {
			t.Error("an integer beyond 2^53 was written")
		}
		if err := e.Encode(struct{ F func() }{}); err == nil {
			t.Error("a function was written")
		}
	}
	if want := "{\"type\":\"a\",\"n\":1}\n{\"a\":2,\"b\":1}\n[]\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if writes != len(good) {
		t.Errorf("%d writes for %d records", writes, len(good))
	}
}

func TestEncoderWriteError(t *testing.T) {
	broken := errors.New("disk full")
	calls := 0
	e := NewEncoder(writerFunc(func(p []byte) (int, error) {
		calls++
		return 0, broken
	}))
	for range 3 {
		if err := e.Encode(1); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if calls != 1 {
		t.Errorf("written %d times after an error", calls-1)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
