package store

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// windowBytes is the window of compressed records: it bounds the memory of
// reading them.
const windowBytes = 1 << 20

// codec compresses and decompresses records.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(windowBytes), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
}

// newDecoder reads frames that this package wrote, in bounded memory.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowBytes))
}

// compress returns the frame of a record if it gains at least 3 %.
func (c *codec) compress(dst, raw []byte) (frame []byte, ok bool, err error) {
	if c.enc == nil {
		if c.enc, err = newEncoder(); err != nil {
			return nil, false, err
		}
	}
	frame = c.enc.EncodeAll(raw, dst[:0])
	return frame, int64(len(frame)) <= int64(len(raw))/100*97, nil
}

// decompress fills raw, whose length is the record's, from its frame.
func (c *codec) decompress(raw, frame []byte) (err error) {
	if c.dec == nil {
		if c.dec, err = newDecoder(nil); err != nil {
			return err
		}
	}
	var head zstd.Header
	if err := head.Decode(frame); err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	if !head.HasFCS || head.FrameContentSize != uint64(len(raw)) {
		return fmt.Errorf("zstd frame of %d bytes, want %d", head.FrameContentSize, len(raw))
	}
	out, err := c.dec.DecodeAll(frame, raw[:0])
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	if len(out) != len(raw) || &out[0] != &raw[0] {
		return fmt.Errorf("zstd frame holds %d bytes, want %d", len(out), len(raw))
	}
	return nil
}

func (c *codec) close() {
	if c.enc != nil {
		c.enc.Close()
	}
	if c.dec != nil {
		c.dec.Close()
	}
}
