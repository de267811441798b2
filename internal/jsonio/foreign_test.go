package jsonio

import "testing"

func TestMembers(t *testing.T) {
	members, err := Members("header", []byte(`{"b": [1, 2.50] , "a\u0062": {"c":1}, "": null}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Member{{"b", RawValue("[1, 2.50]")}, {"ab", RawValue(`{"c":1}`)}, {"", RawValue("null")}}
	if len(members) != len(want) {
		t.Fatalf("got %v", members)
	}
	for i, m := range members {
		if m.Name != want[i].Name || string(m.Value) != string(want[i].Value) {
			t.Errorf("member %d is %q: %s", i, m.Name, m.Value)
		}
	}
	for text, want := range map[string]string{
		`[]`:                  `header: array where an object should be`,
		``:                    `header:1:1: empty where a JSON value should be`,
		`{"a": 1`:             `header:1:8: ends in the middle of a value`,
		`{"a": 1} 2`:          `header:1:11: something follows the value`,
		`{"a": 1, "a": 2}`:    `header:1:10: member "a" occurs twice`,
		`{"a": {"b": tru}}`:   `header:1:16: /a/b: invalid character '}' in literal true (expecting 'e')`,
		`{"a": {"b":1,"b":2}`: `header:1:14: /a: member "b" occurs twice`,
	} {
		if _, err := Members("header", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestElements(t *testing.T) {
	elements, err := Elements("merges", []byte(` [ "a b", ["c", "d"], 3 ] `))
	if err != nil || len(elements) != 3 || string(elements[1]) != `["c", "d"]` || string(elements[2]) != "3" {
		t.Errorf("got %q, %v", elements, err)
	}
	if elements, err := Elements("merges", []byte(`[]`)); err != nil || len(elements) != 0 {
		t.Errorf("got %q, %v", elements, err)
	}
	for _, bad := range []string{`{}`, `[1`, `[1] 2`, `[1,]`, ``, `1`, `[1 2]`} {
		if _, err := Elements("merges", []byte(bad)); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}
