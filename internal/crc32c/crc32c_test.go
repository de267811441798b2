package crc32c_test

import (
	"testing"

	"substrate/internal/crc32c"
)

// The check value is that of the catalogue of parametrised CRC algorithms,
// the other that of RFC 3720, appendix B.4.
func TestSum(t *testing.T) {
	for text, want := range map[string]uint32{"": 0, "123456789": 0xe3069283, string(make([]byte, 32)): 0x8a9136aa} {
		b := []byte(text)
		h := crc32c.New()
		h.Write(b)
		half := len(b) / 2
		if got := []uint32{crc32c.Sum(b), crc32c.Update(crc32c.Sum(b[:half]), b[half:]), h.Sum32()}; got[0] != want || got[1] != want || got[2] != want {
			t.Errorf("%q: got %#x, want %#x", text, got, want)
		}
	}
}
