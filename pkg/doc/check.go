package doc

import (
	"math"
	"strconv"
	"strings"

	"substrate/internal/jsonio"
)

// A checker collects the first thing wrong with a document.
type checker struct{ err error }

// fail records the first error. The pointer is made from path: strings and
// ints are its tokens.
func (c *checker) fail(path []any, format string, args ...any) {
	if c.err == nil {
		c.err = jsonio.Errorf("", pointer(path), format, args...)
	}
}

// at is the path of a value inside a document.
func at(path ...any) []any { return path }

func pointer(path []any) jsonio.Pointer {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		switch p := p.(type) {
		case int:
			b.WriteString(strconv.Itoa(p))
		case string:
			b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
		}
	}
	return jsonio.Pointer(b.String())
}

// validInteger reports whether v is in [lo, 2^53].
func validInteger(v, lo int64) bool { return v >= lo && v <= MaxInteger }

// validNumber reports whether v is finite and at least lo.
func validNumber(v, lo float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && v >= lo
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// validHash reports whether s is a sha256 in lower-case hex.
func validHash(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// addBytes adds without overflow: two valid byte counts never wrap, the sum
// stays at the largest int64.
func addBytes(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// mulBytes multiplies two counts that are not negative, without overflow.
func mulBytes(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// OpLayer returns the block number of an op id such as "block_5.attn", -1 for
// ops outside the blocks.
func OpLayer(id string) int {
	rest, ok := strings.CutPrefix(id, "block_")
	if !ok {
		return -1
	}
	number, _, ok := strings.Cut(rest, ".")
	if !ok {
		return -1
	}
	layer, err := strconv.Atoi(number)
	if err != nil || layer < 0 {
		return -1
	}
	return layer
}
