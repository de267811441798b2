package plane

// Pack writes codes as a little-endian bit stream: code i at bit i*bits. The
// codes fill whole bytes and are below 2^bits.
func Pack(dst []byte, codes []uint8, bits int) {
	dst = dst[:len(codes)*bits/8]
	switch bits {
	case 8:
		copy(dst, codes)
	case 4:
		for i := range dst {
			dst[i] = codes[2*i] | codes[2*i+1]<<4
		}
	case 2:
		for i := range dst {
			c := codes[4*i : 4*i+4 : 4*i+4]
			dst[i] = c[0] | c[1]<<2 | c[2]<<4 | c[3]<<6
		}
	default:
		var acc uint32
		var held, n int
		for _, c := range codes {
			acc |= uint32(c) << held
			for held += bits; held >= 8; held -= 8 {
				dst[n] = byte(acc)
				acc >>= 8
				n++
			}
		}
	}
}

// Unpack reads len(dst) codes that Pack wrote.
func Unpack(dst []uint8, src []byte, bits int) {
	src = src[:len(dst)*bits/8]
	switch bits {
	case 8:
		copy(dst, src)
	case 4:
		for i, b := range src {
			dst[2*i], dst[2*i+1] = b&15, b>>4
		}
	case 2:
		for i, b := range src {
			d := dst[4*i : 4*i+4 : 4*i+4]
			d[0], d[1], d[2], d[3] = b&3, b>>2&3, b>>4&3, b>>6
		}
	default:
		var acc uint32
		var held, n int
		mask := uint32(1)<<bits - 1
		for i := range dst {
			for held < bits {
				acc |= uint32(src[n]) << held
				held += 8
				n++
			}
			dst[i] = uint8(acc & mask)
			acc >>= bits
			held -= bits
		}
	}
}
