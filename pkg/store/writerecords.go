package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"

	"substrate/internal/crc32c"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/quant"
)

// writeRecords writes all records, op by op, each file from its start on.
func (w *writer) writeRecords(ctx context.Context) error {
	w.records = make([]doc.Record, len(w.items))
	w.files = make([]outFile, len(w.Build.files))
	w.above = make([]bool, len(w.items))
	for i := range w.items {
		w.files[w.items[i].file].left++
		if b := w.items[i].below; b >= 0 {
			w.above[b] = true
		}
	}
	if w.reuse != nil {
		if err := w.linkFiles(ctx); err != nil {
			return err
		}
	}
	encoder := &quant.Encoder{Source: w.opt.Source, Stats: w.opt.Stats, Threads: w.opt.Threads}
	held := map[int][]byte{} // raw bytes of this op's records that others add to
	for i := range w.items {
		it := &w.items[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && w.items[i-1].op != it.op {
			for n, raw := range held {
				w.memory.put(raw)
				delete(held, n)
			}
		}
		raw := w.memory.get(w.layouts[it.layout].Bytes)
		if err := w.writeRecord(ctx, encoder, i, raw, held); err != nil {
			return fmt.Errorf("record %q: %w", it.id, err)
		}
		if w.above[i] {
			held[i] = raw
		} else {
			w.memory.put(raw)
		}
		w.opt.Progress(it.id, int64(len(raw)))
	}
	return nil
}

// writeRecord brings record i into its file, and its raw bytes into raw.
func (w *writer) writeRecord(ctx context.Context, encoder *quant.Encoder, i int, raw []byte, held map[int][]byte) error {
	it := &w.items[i]
	out := &w.files[it.file]
	if out.linked {
		return w.linkedRecord(i, raw)
	}
	if out.file == nil {
		if err := w.openFile(it.file); err != nil {
			return err
		}
	}
	offset := footprint.Align(out.end, footprint.RecordAlign)
	line, stored, err := w.resume(i, raw, offset)
	if err != nil {
		return err
	}
	fitted := false
	if stored == nil {
		if !w.copyRecord(i, raw) {
			fitted = true
			if err := w.encode(ctx, encoder, i, raw, held); err != nil {
				return err
			}
		}
		if line, stored, err = w.pack(i, raw); err != nil {
			return err
		}
		if _, err := out.file.WriteAt(stored, offset); err != nil {
			return err
		}
		if err := w.journal.add(line); err != nil {
			return err
		}
	}
	if !fitted && w.reuse.record(i) != nil {
		w.reused += line.Bytes
	}
	pad(out.hash, offset-out.end)
	out.hash.Write(stored)
	out.end = offset + int64(len(stored))
	w.setRecord(i, offset, line)
	if out.left--; out.left == 0 {
		return w.closeFile(it.file)
	}
	return nil
}

// setRecord notes where record i lies in its file.
func (w *writer) setRecord(i int, offset int64, line journalLine) {
	it := &w.items[i]
	w.records[i] = doc.Record{
		ID: it.id, Op: w.spec.Profile.Ops[it.op].ID, Encoding: w.encodings[it.encoding].ID, Layout: it.layout,
		File: it.file, Offset: offset, Bytes: line.Bytes, Zstd: line.Zstd, CRC32C: line.CRC,
	}
}

// linkedRecord is writeRecord where the file is that of the old store.
func (w *writer) linkedRecord(i int, raw []byte) error {
	old := w.reuse.record(i)
	w.setRecord(i, old.Offset, journalLine{Item: i, Bytes: old.Bytes, Zstd: old.Zstd, CRC: old.CRC32C})
	w.reused += old.Bytes
	if !w.above[i] {
		return nil
	}
	return w.reuse.store.read(w.fs, raw, old)
}

// openFile opens a file of records, which an interrupted run may have begun.
func (w *writer) openFile(file int) error {
	if err := w.private(w.name(file)); err != nil {
		return err
	}
	f, err := w.fs.Edit(w.name(file))
	if err != nil {
		return err
	}
	w.files[file].file, w.files[file].hash = f, sha256.New()
	return nil
}

// name is the path of a file of records.
func (w *writer) name(file int) string {
	return filepath.Join(w.dir, filepath.FromSlash(w.Build.files[file]))
}

// resume reads record i where the journal says that it is whole. stored is
// nil if it is not.
func (w *writer) resume(i int, raw []byte, offset int64) (line journalLine, stored []byte, err error) {
	line, ok := w.done[i]
	if !ok || line.Bytes < 1 || line.Bytes > int64(len(raw)) || line.Zstd != (line.Bytes != int64(len(raw))) || line.Zstd && !w.items[i].compress {
		return line, nil, nil
	}
	stored = raw
	if line.Zstd {
		stored = w.memory.get(line.Bytes)
		defer w.memory.put(stored)
	}
	n, err := w.files[w.items[i].file].file.ReadAt(stored, offset)
	if err != nil && err != io.EOF {
		return line, nil, err
	}
	if n < len(stored) {
		return line, nil, nil
	}
	if line.Zstd && w.codec.decompress(raw, stored) != nil || crc32c.Sum(raw) != line.CRC {
		return line, nil, nil
	}
	return line, stored, nil
}

// encode fits record i to raw.
func (w *writer) encode(ctx context.Context, encoder *quant.Encoder, i int, raw []byte, held map[int][]byte) error {
	it := &w.items[i]
	var below []quant.Record // skeleton first
	for b := it.below; b >= 0; b = w.items[b].below {
		r := quant.Record{Layout: &w.layouts[w.items[b].layout], Bytes: held[b]}
		below = append([]quant.Record{r}, below...)
	}
	return encoder.Encode(ctx, raw, &w.spec.Profile.Ops[it.op], &w.encodings[it.encoding], &w.layouts[it.layout], below...)
}

// pack returns what goes into the file for raw. It is valid until the next
// call.
func (w *writer) pack(i int, raw []byte) (line journalLine, stored []byte, err error) {
	line = journalLine{Item: i, CRC: crc32c.Sum(raw)}
	stored = raw
	if w.items[i].compress {
		frame := w.memory.get(int64(len(raw)))
		defer w.memory.put(frame)
		frame, gains, err := w.codec.compress(frame, raw)
		if err != nil {
			return line, nil, err
		}
		if gains {
			stored, line.Zstd = frame, true
		}
	}
	line.Bytes = int64(len(stored))
	return line, stored, nil
}

// closeFile ends a file of records: it is padded to whole blocks and synced.
func (w *writer) closeFile(file int) error {
	out := &w.files[file]
	size := footprint.Align(out.end, footprint.RecordAlign)
	pad(out.hash, size-out.end)
	if err := out.file.Truncate(size); err != nil {
		return err
	}
	if err := out.file.Sync(); err != nil {
		return err
	}
	f := out.file
	out.file = nil
	if err := f.Close(); err != nil {
		return err
	}
	out.sum = doc.StoreFile{File: w.Build.files[file], Bytes: size, SHA256: hex.EncodeToString(out.hash.Sum(nil))}
	return nil
}

// pad writes n zeros, fewer than a block.
func pad(w io.Writer, n int64) {
	var zeros [footprint.RecordAlign]byte
	w.Write(zeros[:n])
}

// buffers keeps memory for records between uses: ops of one shape follow each
// other. It holds no more than were in use at once.
type buffers struct{ free [][]byte }

// get returns n bytes of any content.
func (b *buffers) get(n int64) []byte {
	best := -1
	for i, f := range b.free {
		if int64(cap(f)) >= n && (best < 0 || cap(f) < cap(b.free[best])) {
			best = i
		}
	}
	if best < 0 {
		b.free = nil // all too small: the ops ahead are larger
		return make([]byte, n)
	}
	buf := b.free[best][:n]
	b.free = append(b.free[:best], b.free[best+1:]...)
	return buf
}

func (b *buffers) put(buf []byte) { b.free = append(b.free, buf) }
