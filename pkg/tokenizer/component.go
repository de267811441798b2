package tokenizer

import (
	"fmt"

	"substrate/internal/jsonio"
)

// The parts of a tokenizer.json apart from model and tokens are components: JSON objects with a "type". Every kind of
// component has one interface (normalizer, preTokenizer, postProcessor, decoder) and one function that makes it from its
// JSON (newNormalizer and so on), with a case for each type. A type or a member that is not known is an error: to leave a
// step out would give other tokens without a word.

// componentType returns the "type" of a component.
func componentType(raw jsonio.RawValue) (string, error) {
	var c struct {
		Type string `json:"type"`
	}
	if err := jsonio.UnmarshalLoose("", raw, &c); err != nil {
		return "", err
	}
	if c.Type == "" {
		return "", jsonio.Errorf("", "", `member "type" is missing`)
	}
	return c.Type, nil
}

// typed takes the member "type" in the structs that components are read into.
type typed struct {
	Type string `json:"type"`
}

// unsupported is the error of a component of a type that is not known.
func unsupported(kind, typ string) error {
	return jsonio.Errorf("", "/type", "%s %q is not supported", kind, typ)
}

// isNull tells whether a component is absent.
func isNull(raw jsonio.RawValue) bool { return len(raw) == 0 || raw.Kind() == 'n' }

// makeEach makes the components of a list, the member of that name in a "Sequence".
func makeEach[T any](member string, list []jsonio.RawValue, make func(jsonio.RawValue) (T, error)) ([]T, error) {
	made := []T{}
	for i, raw := range list {
		c, err := make(raw)
		if err != nil {
			return nil, jsonio.Within("", jsonio.Pointer(fmt.Sprintf("/%s/%d", member, i)), err)
		}
		made = append(made, c)
	}
	return made, nil
}

// maxNesting bounds Sequence in Sequence.
const maxNesting = 16
