package run

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/stream"
	"substrate/pkg/trace"
)

// reads submits reads of records, waits for them, with or without a deadline,
// and accounts for them. With the queue of package stream and the ring, which
// issues the reads of ops before they start, it is the run's prefetch
// scheduler.
type reads struct {
	reader  *stream.Reader
	files   []stream.File                 // by file of the manifest, nil for others
	direct  bool                          // every file is read past the page cache
	wrap    func(stream.File) stream.File // for tests, between files and workers
	records []record
	clock   stream.Clock
	trace   *trace.Writer

	token int64 // that is being computed
	total int64 // bytes read
	after int64 // of it, after the first token
	step  int64 // of it, in this step
	wait  int64 // ns of this step that waited for reads
	line  doc.ReadLine
}

// request is a read of one record, made once beside its place.
type request struct {
	*stream.Request
	record int32
	class  stream.Class
}

func newRequest() request { return request{Request: stream.NewRequest()} }

// openFiles opens the files that hold records.
func (s *reads) openFiles(p *program) error {
	s.files = make([]stream.File, len(p.files))
	s.direct = true
	for n, path := range p.files {
		if path == "" {
			continue
		}
		// Places in memory keep this alignment too, whatever files have.
		f, err := stream.Open(path, footprint.RecordAlign)
		if err != nil {
			return err
		}
		s.files[n] = f
		s.direct = s.direct && f.Direct()
		if s.wrap != nil {
			s.files[n] = s.wrap(f)
		}
	}
	return nil
}

// submit reads a raw record to buf.
func (s *reads) submit(q *request, record int32, buf []byte, class stream.Class, deadline int64) {
	r := &s.records[record]
	q.record, q.class = record, class
	q.File, q.Offset, q.CRC, q.Raw = s.files[r.file], r.offset, r.crc, true
	q.Buf = buf[:r.bytes:r.bytes]
	q.Class, q.Deadline = class, deadline
	s.reader.Submit(q.Request)
}

// await waits for a read if it is pending.
func (s *reads) await(ctx context.Context, q *request) error {
	if !q.Pending() {
		return nil
	}
	late := !q.Ready()
	start := s.clock.Now()
	err := s.reader.Wait(ctx, q.Request)
	s.wait += int64(s.clock.Now() - start)
	if q.Pending() {
		return err // ctx ended
	}
	s.account(q, late)
	if err != nil {
		return fmt.Errorf("record %s: %w", s.records[q.record].id, err)
	}
	return nil
}

// never is the deadline of a read that must come, however late.
const never = time.Duration(math.MaxInt64)

// awaitUntil is await with a deadline of the run's clock. It reports whether
// the read arrived; if not, it goes on.
func (s *reads) awaitUntil(ctx context.Context, q *request, deadline time.Duration) (arrived bool, err error) {
	if deadline == never || q.Ready() {
		return true, s.await(ctx, q)
	}
	start := s.clock.Now()
	arrived, err = s.reader.WaitUntil(ctx, q.Request, deadline)
	s.wait += int64(s.clock.Now() - start)
	if q.Pending() {
		return false, err
	}
	s.account(q, true)
	if err != nil {
		err = fmt.Errorf("record %s: %w", s.records[q.record].id, err)
	}
	return arrived, err
}

// drop takes a read back.
func (s *reads) drop(q *request) {
	if q.Pending() && s.reader.Cancel(q.Request) {
		s.account(q, false)
	}
}

// account adds a finished read to the totals and the trace.
func (s *reads) account(q *request, late bool) {
	s.total += q.ReadBytes
	s.step += q.ReadBytes
	if s.token >= 1 {
		s.after += q.ReadBytes
	}
	if s.trace.Wants(trace.Full) {
		s.line = doc.ReadLine{
			TraceHead: s.head(), Record: s.records[q.record].id, Class: q.class.String(),
			Bytes: q.ReadBytes, QueueNs: q.QueueNs, TimeNs: q.TimeNs, Late: late,
		}
		s.trace.Read(&s.line)
	}
}

// head begins a trace line of now.
func (s *reads) head() doc.TraceHead {
	return doc.TraceHead{TNs: int64(s.clock.Now()), Token: s.token}
}

func (s *reads) close() {
	if s.reader != nil {
		s.reader.Close()
	}
	for _, f := range s.files {
		if c, ok := f.(io.Closer); ok {
			c.Close()
		}
	}
}

// piece reads part of a compressed record, from offset at, and waits for it.
func (s *reads) piece(ctx context.Context, q *request, record int32, at int64, buf []byte) error {
	r := &s.records[record]
	q.record, q.class = record, stream.Load
	q.File, q.Offset, q.Raw = s.files[r.file], r.offset+at, false
	q.Buf, q.Class, q.Deadline = buf, stream.Load, 0
	s.reader.Submit(q.Request)
	return s.await(ctx, q)
}
