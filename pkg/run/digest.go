package run

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"unsafe"
)

// digest fingerprints what a run computed: the bits of every token's logits
// and the token that was picked. Two runs with equal digests gave the same
// answer for the same reason.
type digest struct {
	all   hash.Hash
	one   hash.Hash
	sum   [sha256.Size]byte
	hex   [16]byte
	token [4]byte
}

func newDigest() *digest { return &digest{all: sha256.New(), one: sha256.New()} }

// add takes the logits of one token and what was picked. It allocates nothing.
func (d *digest) add(logits []float32, id int32) {
	d.one.Reset()
	d.one.Write(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(logits))), 4*len(logits)))
	d.one.Sum(d.sum[:0])
	binary.LittleEndian.PutUint32(d.token[:], uint32(id))
	d.all.Write(d.sum[:])
	d.all.Write(d.token[:])
}

// logits is the fingerprint of the last token's logits, 16 hex digits.
func (d *digest) logits() string {
	hex.Encode(d.hex[:], d.sum[:8])
	return string(d.hex[:])
}

// run is the fingerprint of all tokens.
func (d *digest) run() string { return hex.EncodeToString(d.all.Sum(nil)) }
