// Package crc32c is the checksum of records: CRC-32 with Castagnoli's
// polynomial, as iSCSI has it, which processors compute in hardware.
package crc32c

import (
	"hash"
	"hash/crc32"
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Sum is the checksum of b.
func Sum(b []byte) uint32 { return crc32.Checksum(b, table) }

// Update is the checksum of what sum is that of, with b behind it.
func Update(sum uint32, b []byte) uint32 { return crc32.Update(sum, table, b) }

// New computes the checksum of what is written to it.
func New() hash.Hash32 { return crc32.New(table) }
