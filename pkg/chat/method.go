package chat

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// methods are the methods of Python's strings and mappings that prompts use.
// Their object is the first argument. Those that change a list are not among
// them: transformers forbids them.
func methods() map[string]function {
	return map[string]function{
		"strip":        strip(strings.Trim, strings.TrimFunc),
		"lstrip":       strip(strings.TrimLeft, strings.TrimLeftFunc),
		"rstrip":       strip(strings.TrimRight, strings.TrimRightFunc),
		"removeprefix": change(strings.TrimPrefix),
		"removesuffix": change(strings.TrimSuffix),
		"startswith":   affix(strings.HasPrefix),
		"endswith":     affix(strings.HasSuffix),
		"split":        split,
		"replace":      replace,
		"find":         find,
		"count":        count,
		"lower":        letters(func(_ bool, r rune) rune { return unicode.ToLower(r) }),
		"upper":        letters(func(_ bool, r rune) rune { return unicode.ToUpper(r) }),
		"title": letters(func(first bool, r rune) rune {
			if first {
				return unicode.ToTitle(r)
			}
			return unicode.ToLower(r)
		}),
		"capitalize": capitalize,
		"items":      items,
		"keys": func(a arguments) (jinja.Value, error) {
			return ofDict(a, func(k string, _ jinja.Value) jinja.Value { return jinja.NewString(k) })
		},
		"values": func(a arguments) (jinja.Value, error) {
			return ofDict(a, func(_ string, v jinja.Value) jinja.Value { return v })
		},
		"get": get,
	}
}

// strip removes white space or some characters from the ends.
func strip(of func(s, chars string) string, white func(string, func(rune) bool) string) function {
	return func(a arguments) (jinja.Value, error) {
		args, err := a.texts(1, 2)
		switch {
		case err != nil:
			return jinja.None(), err
		case len(args) == 2:
			return jinja.NewString(of(args[0], args[1])), nil
		}
		return jinja.NewString(white(args[0], isSpace)), nil
	}
}

func change(f func(s, arg string) string) function {
	return func(a arguments) (jinja.Value, error) {
		args, err := a.texts(2, 2)
		if err != nil {
			return jinja.None(), err
		}
		return jinja.NewString(f(args[0], args[1])), nil
	}
}

// affix looks for one of several texts.
func affix(has func(s, text string) bool) function {
	return func(a arguments) (jinja.Value, error) {
		if len(a.list) == 2 && a.list[1].IsList() {
			a.list = append(slices.Clone(a.list[:1]), a.list[1].AsList().Items...)
		} else if len(a.list) != 2 {
			return jinja.None(), a.refuse()
		}
		args, err := a.texts(1, len(a.list))
		if err != nil {
			return jinja.None(), err
		}
		return jinja.NewBool(slices.ContainsFunc(args[1:], func(text string) bool { return has(args[0], text) })), nil
	}
}

func split(a arguments) (jinja.Value, error) {
	most := -1
	if v := a.at(2, "maxsplit"); v.IsInt() {
		most = int(min(v.AsInt(), maxStringBytes))
		a.list, a.byName = a.list[:min(2, len(a.list))], nil
	}
	args, err := a.texts(1, 2)
	if err != nil {
		return jinja.None(), err
	}
	var parts []string
	switch {
	case len(args) == 1 && most < 0:
		parts = strings.FieldsFunc(args[0], isSpace)
	case len(args) == 1 || args[1] == "":
		return jinja.None(), a.refuse()
	case most < 0:
		parts = strings.Split(args[0], args[1])
	default:
		parts = strings.SplitN(args[0], args[1], most+1)
	}
	list := make([]jinja.Value, len(parts))
	for i, p := range parts {
		list[i] = jinja.NewString(p)
	}
	return jinja.NewList(list), nil
}

func replace(a arguments) (jinja.Value, error) {
	most := -1
	if v := a.at(3, "count"); v.IsInt() {
		most = int(min(v.AsInt(), maxStringBytes))
		a.list, a.byName = a.list[:min(3, len(a.list))], nil
	}
	args, err := a.texts(3, 3)
	if err != nil {
		return jinja.None(), err
	}
	if n := strings.Count(args[0], args[1]); n*(len(args[2])-len(args[1])) > maxStringBytes {
		return jinja.None(), unsupported(0, "a string of more than %d bytes", maxStringBytes)
	}
	return jinja.NewString(strings.Replace(args[0], args[1], args[2], most)), nil
}

// find gives a place in characters, -1 for none.
func find(a arguments) (jinja.Value, error) {
	args, err := a.texts(2, 2)
	if err != nil {
		return jinja.None(), err
	}
	at := strings.Index(args[0], args[1])
	if at > 0 {
		at = utf8.RuneCountInString(args[0][:at])
	}
	return jinja.NewInt(int64(at)), nil
}

func count(a arguments) (jinja.Value, error) {
	args, err := a.texts(2, 2)
	if err != nil {
		return jinja.None(), err
	}
	return jinja.NewInt(int64(strings.Count(args[0], args[1]))), nil
}

// letters maps every character; first says that no letter is before it. Where
// the case of a character is more than one character or depends on others,
// Python and Go differ.
func letters(f func(first bool, r rune) rune) function {
	return func(a arguments) (jinja.Value, error) {
		args, err := a.texts(1, 1)
		if err != nil {
			return jinja.None(), err
		}
		var b strings.Builder
		first := true
		for _, r := range args[0] {
			if specialCase(r) {
				return jinja.None(), unsupported(0, "%s, applied to %q", a.name, r)
			}
			b.WriteRune(f(first, r))
			first = !unicode.IsLetter(r)
		}
		return jinja.NewString(b.String()), nil
	}
}

// specialCase reports characters of SpecialCasing.txt of Unicode.
func specialCase(r rune) bool {
	return strings.ContainsRune("ßŉǰΐΰևİΣ", r) || 0x1c4 <= r && r <= 0x1cc || 0x1f1 <= r && r <= 0x1f3 ||
		0x1e96 <= r && r <= 0x1e9e || 0x1f00 <= r && r <= 0x1fff || 0xfb00 <= r && r <= 0xfb17
}

func capitalize(a arguments) (jinja.Value, error) {
	place := 0
	return letters(func(_ bool, r rune) rune {
		if place++; place == 1 {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	})(a)
}

func items(a arguments) (jinja.Value, error) {
	return ofDict(a, func(k string, v jinja.Value) jinja.Value { return jinja.NewList([]jinja.Value{jinja.NewString(k), v}) })
}

// ofDict makes a list with one element for every member of a mapping.
func ofDict(a arguments, of func(key string, v jinja.Value) jinja.Value) (jinja.Value, error) {
	v := a.at(0, "")
	if !v.IsDict() || len(a.list) != 1 || len(a.byName) > 0 {
		return jinja.None(), a.refuse()
	}
	var list []jinja.Value
	for _, key := range v.AsDict().Keys {
		value, _ := v.AsDict().Get(key)
		list = append(list, of(key, value))
	}
	return jinja.NewList(list), nil
}

func get(a arguments) (jinja.Value, error) {
	d, key, other := a.at(0, ""), a.at(1, ""), a.at(2, "")
	if !d.IsDict() || !key.IsString() {
		return jinja.None(), a.refuse()
	}
	if v, ok := d.AsDict().Get(key.AsString()); ok {
		return v, nil
	}
	if other.IsUndefined() {
		return jinja.None(), nil
	}
	return other, nil
}
