//go:build goexperiment.jsonv2

package jsonio

import (
	"bytes"
	stdjson "encoding/json/v2"
	"reflect"
	"testing"
)

// FuzzUnmarshalV2 compares with encoding/json/v2, whose rules are ours but for null and big integers: both accept the
// same texts, read the same values, and write them as the same bytes. It needs GOEXPERIMENT=jsonv2.
func FuzzUnmarshalV2(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want document
		err := UnmarshalKnown("f.json", b, &got)
		std := stdjson.Unmarshal(b, &want, stdjson.RejectUnknownMembers(true))
		if (err == nil) != (std == nil) {
			t.Fatalf("%q: %v, but encoding/json/v2 says %v", b, err, std)
		}
		if err != nil {
			return
		}
		got.Own, want.Own = nil, nil // reads itself with this package, not with the other
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n is %#v\nnot %#v", b, got, want)
		}
		got.Raw, want.Raw = nil, nil // a type of ours
		ours, err := MarshalLine(got)
		if err != nil {
			return // null under annotations is, elsewhere is not, written
		}
		theirs, err := stdjson.Marshal(want, stdjson.Deterministic(true))
		if err != nil || !bytes.Equal(bytes.TrimSuffix(ours, []byte("\n")), theirs) {
			t.Fatalf("written as %s, by encoding/json/v2 as %s, %v", ours, theirs, err)
		}
	})
}
