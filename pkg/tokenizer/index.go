package tokenizer

import (
	"math/bits"
	"math/rand/v2"
)

// index is a hash table from 64-bit hashes to references, small numbers that say where the owner keeps the entry. It is
// one flat slice of 32-bit slots, probed linearly: Go's map would take five times the memory.
//
// A slot holds a reference plus one in its low bits and part of the hash above, so that nearly every probe of another
// entry ends without a look at the entry itself. 0 is an empty slot.
type index struct {
	slots   []uint32
	shift   uint // of a hash, to its first slot
	refBits uint // of a slot, below the part of the hash
}

// newIndex makes room for the references below n.
func newIndex(n int) index {
	// At most two thirds full: longer runs of taken slots make a miss slow.
	size := bits.Len(uint(max(n+n/2, 4)))
	return index{
		slots:   make([]uint32, 1<<size),
		shift:   uint(64 - size),
		refBits: uint(bits.Len(uint(n))),
	}
}

func (x *index) tag(hash uint64) uint32 { return uint32(hash) >> x.refBits }

// insert adds a reference, whether or not there is one of an equal entry.
func (x *index) insert(hash uint64, ref uint32) {
	mask := len(x.slots) - 1
	at := int(hash >> x.shift)
	for x.slots[at] != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = x.tag(hash)<<x.refBits | (ref + 1)
}

// probe returns the next reference whose entry may have the hash, from the slot on, and the slot after it. The first slot
// to ask for is first(hash); no further candidates: ok is false.
func (x *index) probe(hash uint64, slot int) (ref uint32, next int, ok bool) {
	mask := len(x.slots) - 1
	tag := x.tag(hash)
	for {
		slot &= mask
		s := x.slots[slot]
		slot++
		if s == 0 {
			return 0, slot, false
		}
		if s>>x.refBits == tag {
			return s&(1<<x.refBits-1) - 1, slot, true
		}
	}
}

func (x *index) first(hash uint64) int { return int(hash >> x.shift) }

// pairHash mixes two ids under a key that nobody can know in advance: with a fixed function a hostile file could put all
// its merges into one run of slots.
type pairHash struct{ key, factor uint64 }

func newPairHash() pairHash { return pairHash{rand.Uint64(), rand.Uint64() | 1} }

func (h pairHash) sum(left, right int32) uint64 {
	hi, lo := bits.Mul64(uint64(uint32(left))<<32|uint64(uint32(right))^h.key, h.factor)
	return hi ^ lo
}
