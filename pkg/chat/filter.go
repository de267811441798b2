package chat

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"

	"substrate/internal/jsonio"
)

// filters are the filters of Jinja2 that prompts use. Their input is the
// first argument.
func filters() map[string]function {
	return map[string]function{
		"trim":       method("strip"),
		"lower":      method("lower"),
		"upper":      method("upper"),
		"title":      method("title"),
		"capitalize": method("capitalize"),
		"replace":    method("replace"),
		"items":      method("items"),
		"int":        toInt,
		"string":     func(a arguments) (jinja.Value, error) { return newText(text(a.at(0, ""))) },
		"safe":       func(a arguments) (jinja.Value, error) { return a.at(0, ""), nil },
		"length":     length,
		"count":      length,
		"first":      func(a arguments) (jinja.Value, error) { return end(a, 0) },
		"last":       func(a arguments) (jinja.Value, error) { return end(a, -1) },
		"list":       func(a arguments) (jinja.Value, error) { return newList(elements(a)) },
		"reverse":    reverse,
		"join":       join,
		"default":    defaultTo,
		"d":          defaultTo,
		"selectattr": func(a arguments) (jinja.Value, error) { return selectAttr(a, true) },
		"rejectattr": func(a arguments) (jinja.Value, error) { return selectAttr(a, false) },
		"map":        mapAttribute,
		"tojson":     toJSON,
	}
}

// method is a filter that is a method of its input.
func method(name string) function { return methods()[name] }

func newText(s string, err error) (jinja.Value, error) { return jinja.NewString(s), err }

func newList(items []jinja.Value, err error) (jinja.Value, error) { return jinja.NewList(items), err }

// elements are what iterating over the first argument gives.
func elements(a arguments) ([]jinja.Value, error) {
	v := a.at(0, "")
	switch {
	case v.IsList():
		return slices.Clone(v.AsList().Items), nil
	case v.IsUndefined():
		return nil, nil
	case v.IsDict():
		var keys []jinja.Value
		for _, key := range v.AsDict().Keys {
			keys = append(keys, jinja.NewString(key))
		}
		return keys, nil
	case v.IsString():
		var runes []jinja.Value
		for _, r := range v.AsString() {
			runes = append(runes, jinja.NewString(string(r)))
		}
		return runes, nil
	}
	return nil, a.refuse()
}

func toInt(a arguments) (jinja.Value, error) {
	v := a.at(0, "")
	switch {
	case v.IsInt():
		return v, nil
	case v.IsBool():
		if v.AsBool() {
			return jinja.NewInt(1), nil
		}
		return jinja.NewInt(0), nil
	case v.IsString():
		if n, err := strconv.ParseInt(strings.TrimFunc(v.AsString(), isSpace), 10, 64); err == nil {
			return jinja.NewInt(n), nil
		}
	}
	return jinja.None(), a.refuse()
}

func length(a arguments) (jinja.Value, error) {
	items, err := elements(a)
	return jinja.NewInt(int64(len(items))), err
}

// end is the first (0) or last (-1) element.
func end(a arguments, i int) (jinja.Value, error) {
	items, err := elements(a)
	if err != nil || len(items) == 0 {
		return jinja.Undefined(), err
	}
	return items[(i+len(items))%len(items)], nil
}

func reverse(a arguments) (jinja.Value, error) {
	items, err := elements(a)
	slices.Reverse(items)
	if a.at(0, "").IsString() {
		var b strings.Builder
		for _, v := range items {
			b.WriteString(v.AsString())
		}
		return newText(b.String(), err)
	}
	return newList(items, err)
}

func join(a arguments) (jinja.Value, error) {
	items, err := elements(a)
	if err != nil {
		return jinja.None(), err
	}
	separator, attribute := a.at(1, "d"), a.at(2, "attribute")
	parts := make([]string, len(items))
	for i, v := range items {
		if !attribute.IsUndefined() {
			if v, err = member(a, v, attribute); err != nil {
				return jinja.None(), err
			}
		}
		if parts[i], err = text(v); err != nil {
			return jinja.None(), err
		}
	}
	between, err := text(separator)
	return newText(strings.Join(parts, between), err)
}

// member is v[name].
func member(a arguments, v, name jinja.Value) (jinja.Value, error) {
	if !v.IsDict() || !name.IsString() || strings.Contains(name.AsString(), ".") {
		return jinja.None(), a.refuse()
	}
	found, _ := v.AsDict().Get(name.AsString())
	return found, nil
}

func defaultTo(a arguments) (jinja.Value, error) {
	v, other := a.at(0, ""), a.at(1, "default_value")
	if v.IsUndefined() || a.at(2, "boolean").IsTruthy() && !v.IsTruthy() {
		if other.IsUndefined() {
			return jinja.NewString(""), nil
		}
		return other, nil
	}
	return v, nil
}

// selectAttr keeps (or drops) what has a member that passes a test.
func selectAttr(a arguments, keep bool) (jinja.Value, error) {
	items, err := elements(a)
	if err != nil {
		return jinja.None(), err
	}
	pass := test(func(a arguments) (bool, error) { return a.at(0, "").IsTruthy(), nil })
	if name := a.at(2, ""); name.IsString() {
		if pass = tests()[name.AsString()]; pass == nil {
			return jinja.None(), unsupported(0, "the test %q", name.AsString())
		}
	}
	var kept []jinja.Value
	for _, v := range items {
		m, err := member(a, v, a.at(1, ""))
		if err != nil {
			return jinja.None(), err
		}
		args := []jinja.Value{m}
		if len(a.list) > 3 {
			args = append(args, a.list[3:]...)
		}
		ok, err := pass(arguments{name: a.name, list: args})
		if err != nil {
			return jinja.None(), err
		}
		if ok == keep {
			kept = append(kept, v)
		}
	}
	return jinja.NewList(kept), nil
}

// mapAttribute is map(attribute="name").
func mapAttribute(a arguments) (jinja.Value, error) {
	items, err := elements(a)
	if err == nil && (len(a.list) != 1 || len(a.byName) != 1) {
		err = a.refuse()
	}
	for i := range items {
		if err == nil {
			items[i], err = member(a, items[i], a.byName["attribute"])
		}
	}
	return newList(items, err)
}

// toJSON is json.dumps of Python with ensure_ascii=False.
func toJSON(a arguments) (jinja.Value, error) {
	w := jsonWriter{between: ", ", colon: ": "}
	if v := a.at(2, "indent"); v.IsInt() && v.AsInt() >= 0 && v.AsInt() <= 16 {
		w.indent, w.between = "\n"+strings.Repeat(" ", int(v.AsInt())), ","
		w.step = w.indent[1:]
	} else if !v.IsUndefined() && !v.IsNone() {
		return jinja.None(), a.refuse()
	}
	if v := a.at(3, "separators"); v.IsList() && v.AsList().Len() == 2 && v.AsList().Get(0).IsString() && v.AsList().Get(1).IsString() {
		w.between, w.colon = v.AsList().Get(0).AsString(), v.AsList().Get(1).AsString()
	} else if !v.IsUndefined() && !v.IsNone() {
		return jinja.None(), a.refuse()
	}
	if a.at(1, "ensure_ascii").IsTruthy() {
		return jinja.None(), a.refuse()
	}
	w.sort = a.at(4, "sort_keys").IsTruthy()
	if err := w.value(a, a.at(0, "")); err != nil {
		return jinja.None(), err
	}
	return jinja.NewString(string(w.out)), nil
}

type jsonWriter struct {
	out            []byte
	between, colon string
	indent, step   string // "\n" and the spaces of the level at hand, and of one more; "" without
	sort           bool
}

func (w *jsonWriter) value(a arguments, v jinja.Value) (err error) {
	switch {
	case v.IsNone():
		w.out = append(w.out, "null"...)
	case v.IsBool():
		w.out = strconv.AppendBool(w.out, v.AsBool())
	case v.IsInt():
		w.out = strconv.AppendInt(w.out, v.AsInt(), 10)
	case v.IsString():
		w.out, err = jsonio.AppendString(w.out, v.AsString())
	case v.IsList():
		items := v.AsList().Items
		return w.nested('[', ']', len(items), func(i int) error { return w.value(a, items[i]) })
	case v.IsDict():
		keys := v.AsDict().OrderedKeys()
		if w.sort {
			slices.Sort(keys)
		}
		return w.nested('{', '}', len(keys), func(i int) error {
			if w.out, err = jsonio.AppendString(w.out, keys[i]); err != nil {
				return err
			}
			w.out = append(w.out, w.colon...)
			item, _ := v.AsDict().Get(keys[i])
			return w.value(a, item)
		})
	default:
		return a.refuse()
	}
	return err
}

func (w *jsonWriter) nested(open, end byte, n int, item func(i int) error) error {
	w.out = append(w.out, open)
	for i := range n {
		if i > 0 {
			w.out = append(w.out, w.between...)
		}
		w.out = append(w.out, w.indent...)
		outer := w.indent
		if w.indent != "" {
			w.indent += w.step
		}
		err := item(i)
		w.indent = outer
		if err != nil {
			return err
		}
	}
	if n > 0 && w.indent != "" {
		w.out = append(w.out, w.indent[:len(w.indent)-len(w.step)]...)
	}
	w.out = append(w.out, end)
	return nil
}
