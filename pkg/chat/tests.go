package chat

import (
	"slices"

	"github.com/ardanlabs/jinja"
)

// test is what stands behind "is": its subject is the first argument.
type test func(a arguments) (bool, error)

// function is the test, or what is its opposite.
func (t test) function(want bool) function {
	return func(a arguments) (jinja.Value, error) {
		ok, err := t(a)
		return jinja.NewBool(ok == want), err
	}
}

// kinds is a test of what a value is alone.
func kinds(is func(v jinja.Value) bool) test {
	return func(a arguments) (bool, error) {
		if len(a.list) != 1 || len(a.byName) > 0 {
			return false, a.refuse()
		}
		return is(a.list[0]), nil
	}
}

// tests are the tests of Jinja2 that prompts use.
func tests() map[string]test {
	equal := test(func(a arguments) (bool, error) {
		if len(a.list) != 2 || a.list[0].IsNumber() != a.list[1].IsNumber() && a.list[0].IsBool() != a.list[1].IsBool() {
			return false, a.refuse()
		}
		return a.list[0].Equals(a.list[1]), nil
	})
	return map[string]test{
		"defined":   kinds(func(v jinja.Value) bool { return !v.IsUndefined() }),
		"undefined": kinds(jinja.Value.IsUndefined),
		"none":      kinds(jinja.Value.IsNone),
		"string":    kinds(jinja.Value.IsString),
		"mapping":   kinds(jinja.Value.IsDict),
		"boolean":   kinds(jinja.Value.IsBool),
		"integer":   kinds(jinja.Value.IsInt),
		"number":    kinds(func(v jinja.Value) bool { return v.IsNumber() || v.IsBool() }),
		"float":     kinds(jinja.Value.IsFloat),
		"true":      kinds(func(v jinja.Value) bool { return v.IsBool() && v.AsBool() }),
		"false":     kinds(func(v jinja.Value) bool { return v.IsBool() && !v.AsBool() }),
		"iterable":  kinds(func(v jinja.Value) bool { return v.IsList() || v.IsDict() || v.IsString() || v.IsUndefined() }),
		"sequence":  kinds(func(v jinja.Value) bool { return v.IsList() || v.IsDict() || v.IsString() || v.IsUndefined() }),
		"odd":       kinds(func(v jinja.Value) bool { return v.IsInt() && v.AsInt()%2 != 0 }),
		"even":      kinds(func(v jinja.Value) bool { return v.IsInt() && v.AsInt()%2 == 0 }),
		"eq":        equal,
		"equalto":   equal,
		"ne": func(a arguments) (bool, error) {
			same, err := equal(a)
			return !same, err
		},
		"in": func(a arguments) (bool, error) {
			if len(a.list) != 2 || !a.list[1].IsList() {
				return false, a.refuse()
			}
			return slices.ContainsFunc(a.list[1].AsList().Items, a.list[0].Equals), nil
		},
	}
}
