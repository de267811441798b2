package tokenizer

import "unicode/utf8"

// The byte-level alphabet, of OpenAI's GPT-2 (encoder.py, bytes_to_unicode), gives each of the 256 bytes a printable
// character: a byte that is one in Latin-1 stands for itself, the 68 others are U+0100 and on, in order.

// byteChar returns the character of a byte.
func byteChar(b byte) rune {
	switch {
	case b <= ' ':
		return 0x100 + rune(b)
	case b >= 0x7F && b <= 0xA0:
		return 0x100 + '!' + rune(b-0x7F)
	case b == 0xAD:
		return 0x143
	}
	return rune(b)
}

// charByte is the inverse of byteChar; false for characters outside the alphabet.
func charByte(r rune) (byte, bool) {
	switch {
	case r >= 0x100 && r <= 0x100+' ':
		return byte(r - 0x100), true
	case r > 0x100+' ' && r < 0x143:
		return byte(r - (0x100 + '!') + 0x7F), true
	case r == 0x143:
		return 0xAD, true
	case r < 0 || r > 0xFF || byteChar(byte(r)) != r:
		return 0, false
	}
	return byte(r), true
}

func appendByteChar(dst []byte, b byte) []byte {
	return utf8.AppendRune(dst, byteChar(b))
}

// appendByteChars appends text in the alphabet.
func appendByteChars(dst, text []byte) []byte {
	for _, b := range text {
		if b > ' ' && b < 0x7F {
			dst = append(dst, b)
		} else {
			dst = utf8.AppendRune(dst, byteChar(b))
		}
	}
	return dst
}

// appendCharBytes appends the bytes that text, in the alphabet, stands for. If a character of it is not in the alphabet it
// appends nothing and returns false.
func appendCharBytes(dst, text []byte) ([]byte, bool) {
	before := len(dst)
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		b, ok := charByte(r)
		if !ok {
			return dst[:before], false
		}
		dst = append(dst, b)
		at += size
	}
	return dst, true
}
