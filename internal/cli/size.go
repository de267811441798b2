package cli

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Size is a number of bytes as a flag: "36G" and "36GiB" are 36*2^30, "36GB" is 36*10^9, "4096" is bytes. It prints as
// it was understood: "36 GiB (38654705664 bytes)".
type Size int64

const unitLetters = "KMGTPE"

// ParseSize reads a size. Decimal fractions are exact; a part of a byte is dropped. Sign, exponent, overflow and an
// empty text are errors.
func ParseSize(s string) (Size, error) {
	digits := strings.TrimRight(s, "KMGTPEiBkmgtpe")
	unit, err := parseUnit(s[len(digits):])
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: %w", s, err)
	}
	n, err := parseDecimal(digits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: %w", s, err)
	}
	n.Mul(n, new(big.Rat).SetInt(unit))
	bytes := new(big.Int).Quo(n.Num(), n.Denom())
	if !bytes.IsInt64() {
		return 0, fmt.Errorf("%q is not a size: more than 2^63 bytes", s)
	}
	return Size(bytes.Int64()), nil
}

// parseUnit reads "", "B", "G", "GiB" or "GB".
func parseUnit(s string) (*big.Int, error) {
	if s == "" || s == "B" {
		return big.NewInt(1), nil
	}
	power := strings.IndexByte(unitLetters, s[0]&^0x20) + 1
	base := int64(1024)
	switch rest := s[1:]; {
	case power == 0:
		return nil, fmt.Errorf("unknown unit %q", s)
	case rest == "B":
		base = 1000
	case rest != "" && rest != "iB":
		return nil, fmt.Errorf("unknown unit %q", s)
	}
	return new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(power)), nil), nil
}

// parseDecimal reads digits with at most one point among them.
func parseDecimal(s string) (*big.Rat, error) {
	whole, fraction, point := strings.Cut(s, ".")
	switch {
	case s == "":
		return nil, errors.New("it has no number")
	case len(s) > 40:
		return nil, errors.New("too many digits")
	case whole == "" || point && fraction == "" || !isDigits(whole) || !isDigits(fraction):
		return nil, errors.New("digits, perhaps with a point, and a unit are expected, as in 1.5G")
	}
	n, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, errors.New("not a number")
	}
	return n, nil
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

func (s *Size) Set(text string) error {
	n, err := ParseSize(text)
	if err == nil {
		*s = n
	}
	return err
}

func (s *Size) Type() string { return "SIZE" }

func (s Size) String() string {
	if s < 1024 {
		return s.short()
	}
	return fmt.Sprintf("%s (%d bytes)", s.short(), int64(s))
}

// short is the size in its largest unit: exactly if three decimals suffice, binary before decimal; else rounded to two.
func (s Size) short() string {
	if s < 1024 {
		return strconv.FormatInt(int64(s), 10) + " bytes"
	}
	if text, exact := s.in(1024, "iB"); exact {
		return text
	}
	if text, exact := s.in(1000, "B"); exact {
		return text
	}
	text, _ := s.in(1024, "iB")
	return text
}

func (s Size) in(base int64, suffix string) (text string, exact bool) {
	unit, power := int64(1), 0
	for power < len(unitLetters) && int64(s)/unit >= base {
		unit *= base
		power++
	}
	name := unitLetters[power-1:power] + suffix
	n := big.NewRat(int64(s), unit)
	text = n.FloatString(3)
	back, _ := new(big.Rat).SetString(text)
	if exact = back.Cmp(n) == 0; exact {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	} else {
		text = n.FloatString(2)
	}
	return text + " " + name, exact
}
