package run

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"substrate/internal/crc32c"
	"substrate/pkg/doc"
	"substrate/pkg/store"
	"substrate/pkg/stream"
)

// loadDepth is how many reads of the load are under way or queued.
const loadDepth = 8

// load reads every resident record to its place.
func (r *Run) load(ctx context.Context) error {
	var queue [loadDepth]request
	for i := range queue {
		queue[i] = newRequest()
	}
	compressed := false
	next := 0
	for i, at := range r.places {
		if at.slab == nil {
			continue
		}
		if r.program.records[i].zstd {
			compressed = true
			continue
		}
		q := &queue[next%loadDepth]
		if err := r.reads.await(ctx, q); err != nil {
			return err
		}
		r.reads.submit(q, int32(i), at.slab.Bytes()[at.at:], stream.Load, int64(next))
		next++
	}
	for i := range queue {
		if err := r.reads.await(ctx, &queue[(next+i)%loadDepth]); err != nil {
			return err
		}
	}
	if compressed {
		return r.loadCompressed(ctx)
	}
	return nil
}

// Compressed records are decoded as a stream, so that they take no memory of
// their size beside their place.
const (
	frameBufferBytes = 512 << 10
	maxFrameWindow   = 1 << 20 // what sb-pack writes

	// frameBytes is what decoding takes at its peak: the buffer, the decoder's
	// history of two windows, its tables.
	frameBytes = 4 << 20
)

// loadCompressed reads the resident records that are compressed.
func (r *Run) loadCompressed(ctx context.Context) error {
	buf, err := r.counted.Alloc(doc.LedgerStaging, frameBufferBytes)
	if err != nil {
		return err
	}
	frame := frameReader{ctx: ctx, reads: &r.reads, request: newRequest(), buf: buf}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxFrameWindow))
	if err != nil {
		return err
	}
	defer d.Close()
	for i, at := range r.places {
		rec := &r.program.records[i]
		if at.slab == nil || !rec.zstd {
			continue
		}
		raw := at.slab.Bytes()[at.at:][:rec.bytes]
		if err := frame.decode(d, int32(i), raw); err != nil {
			return fmt.Errorf("record %s: %w", rec.id, err)
		}
	}
	return nil
}

// frameReader reads a record's frame in pieces.
type frameReader struct {
	ctx     context.Context
	reads   *reads
	request request
	buf     []byte
	record  int32
	at      int64  // in the frame, of what was not read yet
	left    []byte // read and not taken
	err     error
}

// decode fills raw from the frame of a record and checks it.
func (f *frameReader) decode(d *zstd.Decoder, record int32, raw []byte) error {
	f.record, f.at, f.left = record, 0, nil
	rec := &f.reads.records[record]
	name := f.reads.files[rec.file].Name()
	err := d.Reset(f)
	if err == nil {
		_, err = io.ReadFull(d, raw)
	}
	if err == nil {
		if _, end := d.Read(make([]byte, 1)); !errors.Is(end, io.EOF) {
			err = fmt.Errorf("more than %d bytes", len(raw))
		}
	}
	if f.err != nil {
		return f.err
	}
	if err != nil {
		return &store.CorruptError{Path: name, Reason: fmt.Sprintf("offset %d: zstd: %v", rec.offset, err)}
	}
	if got := crc32c.Sum(raw); got != rec.crc {
		return &stream.CorruptError{File: name, Offset: rec.offset, Bytes: len(raw), Want: rec.crc, Got: got}
	}
	return nil
}

// Read implements io.Reader for the decoder.
func (f *frameReader) Read(p []byte) (int, error) {
	if len(f.left) == 0 {
		if err := f.refill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}

func (f *frameReader) refill() error {
	rec := &f.reads.records[f.record]
	n := min(rec.stored-f.at, int64(len(f.buf)))
	if n == 0 {
		return io.EOF
	}
	if f.err = f.reads.piece(f.ctx, &f.request, f.record, f.at, f.buf[:n]); f.err != nil {
		return f.err
	}
	f.left, f.at = f.buf[:n], f.at+n
	return nil
}
