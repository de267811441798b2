package jsonio

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/goccy/go-json/jsontext"
)

// maxIntegerDigits is the number of digits of MaxInteger: a longer run of digits is worth a closer look.
const maxIntegerDigits = 16

// check refuses null and integers beyond 2^53 in the valid JSON b, except under "annotations".
//
// Nearly every document has neither, which one pass over the bytes shows; only else is b read again token by token.
func check(name string, b []byte) error {
	if !suspect(b) {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := d.ReadToken()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return newError(name, b, err)
		}
		reason := tokenFault(tok)
		if reason == "" || annotated(d.StackPointer()) {
			continue
		}
		return &Error{File: name, Offset: d.InputOffset(), Pointer: d.StackPointer(), Reason: reason}
	}
}

// suspect reports whether b, valid JSON, has a null or a run of 16 digits outside its strings.
func suspect(b []byte) bool {
	digits := 0
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c-'0' <= 9 {
			if digits++; digits >= maxIntegerDigits {
				return true
			}
			continue
		}
		digits = 0
		switch c {
		case 'n':
			return true
		case 't':
			i += len("rue")
		case 'f':
			i += len("alse")
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		}
	}
	return false
}

func tokenFault(tok jsontext.Token) string {
	switch tok.Kind() {
	case 'n':
		return "null is not a value here, leave the member out"
	case '0':
		return integerFault(tok.String())
	}
	return ""
}

// integerFault says what is wrong with a number literal that is an integer beyond 2^53; "" for all others.
func integerFault(lit string) string {
	if strings.ContainsAny(lit, ".eE") {
		return ""
	}
	n, err := strconv.ParseInt(lit, 10, 64)
	if errors.Is(err, strconv.ErrRange) || n > MaxInteger || n < -MaxInteger {
		return "integer " + lit + " is beyond 2^53, where readers round"
	}
	return ""
}

func annotated(p Pointer) bool {
	for tok := range p.Tokens() {
		if tok == "annotations" {
			return true
		}
	}
	return false
}
