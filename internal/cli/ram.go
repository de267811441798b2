package cli

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// RAMSize is an amount of memory as a flag: a [Size], a share of the machine's memory ("75%"), or "auto". The zero
// value is "not given".
type RAMSize struct {
	text    string
	bytes   Size
	percent *big.Rat
}

// ParseRAMSize reads "36G", "75%" or "auto".
func ParseRAMSize(s string) (RAMSize, error) {
	r := RAMSize{text: s}
	if s == "auto" {
		return r, nil
	}
	if number, ok := strings.CutSuffix(s, "%"); ok {
		p, err := parseDecimal(number)
		if err != nil {
			return RAMSize{}, fmt.Errorf("%q is not a share: %w", s, err)
		}
		if p.Sign() == 0 || p.Cmp(big.NewRat(100, 1)) > 0 {
			return RAMSize{}, fmt.Errorf("%q is not a share: more than 0%% and at most 100%% is expected", s)
		}
		r.percent = p
		return r, nil
	}
	n, err := ParseSize(s)
	if err != nil {
		return RAMSize{}, err
	}
	if n == 0 {
		return RAMSize{}, errors.New("no memory at all")
	}
	r.bytes = n
	return r, nil
}

// IsSet reports whether the flag was given.
func (r RAMSize) IsSet() bool { return r.text != "" }

// IsAuto reports whether the machine is to decide.
func (r RAMSize) IsAuto() bool { return r.text == "auto" }

// Bytes is the amount on a machine with total bytes of memory of which auto says how many to take. Shares are rounded
// down. It is 0 if the flag was not given.
func (r RAMSize) Bytes(total, auto int64) int64 {
	switch {
	case r.IsAuto():
		return auto
	case r.percent != nil:
		share := new(big.Rat).Mul(r.percent, big.NewRat(total, 100))
		return new(big.Int).Quo(share.Num(), share.Denom()).Int64()
	}
	return int64(r.bytes)
}

func (r *RAMSize) Set(text string) error {
	n, err := ParseRAMSize(text)
	if err == nil {
		*r = n
	}
	return err
}

func (r *RAMSize) Type() string { return "SIZE" }

func (r *RAMSize) String() string {
	if r.bytes > 0 {
		return r.bytes.String()
	}
	return r.text
}
