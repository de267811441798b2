package jsonio

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/goccy/go-json/jsontext"
)

// maxIntegerDigits is the number of digits of MaxInteger: an integer of as many is worth a closer look.
const maxIntegerDigits = 16

// check refuses null and integers beyond 2^53 in the valid JSON b, except under "annotations".
//
// Nearly every document has neither, which one pass over the bytes shows; only else is b read again token by token.
func check(name string, b []byte) error {
	if !suspect(b) {
		return nil
	}
	return walk(name, b)
}

// walk is check without its short cut.
func walk(name string, b []byte) error {
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

// suspect reports whether b, valid JSON, has a null or an integer of 16 digits or more outside its strings.
func suspect(b []byte) bool {
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case 'n':
			return true
		case 't':
			i += len("rue")
		case 'f':
			i += len("alse")
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			begin := i
			for i < len(b) && b[i]-'0' <= 9 {
				i++
			}
			if i < len(b) && (b[i] == '.' || b[i]|0x20 == 'e') {
				for i < len(b) && inNumber(b[i]) {
					i++
				}
			} else if i-begin >= maxIntegerDigits {
				return true
			}
			i-- // what ended the number is looked at next
		}
	}
	return false
}

func inNumber(c byte) bool {
	return c-'0' <= 9 || c == '.' || c == '-' || c == '+' || c|0x20 == 'e'
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
