package calib

import (
	"fmt"
	"os"
	"unsafe"
)

// streamPool is memory for residual streams: one holds a variant's stream for
// every sequence of a text between two stages. Those beyond what may be held
// in RAM go to a temporary file.
type streamPool struct {
	hidden int
	starts []int // by sequence: its first token, and the total at the end
	ram    int   // streams that may still be made in RAM
	disk   int   // streams that may still be made on disk
	dir    string
	file   *os.File
	freeAt []int64
	free   [][]float32
	buf    []float32
}

// newStreamPool makes room for as many streams of data as the bytes hold, one
// at least.
func newStreamPool(data *Data, hidden int, ramBytes, diskBytes int64, dir string) *streamPool {
	p := &streamPool{hidden: hidden, dir: dir, starts: []int{0}}
	for _, s := range data.Sequences {
		p.starts = append(p.starts, p.starts[len(p.starts)-1]+len(s.IDs))
	}
	p.ram, p.disk = int(ramBytes/p.bytes()), int(diskBytes/p.bytes())
	return p
}

// bytes is the size of one stream.
func (p *streamPool) bytes() int64 { return 4 * int64(p.starts[len(p.starts)-1]) * int64(p.hidden) }

// room is how many streams can be made.
func (p *streamPool) room() int { return p.ram + p.disk }

// streams is the residual stream of every sequence.
type streams struct {
	pool *streamPool
	mem  []float32 // nil: on disk
	at   int64
}

func (p *streamPool) make() (*streams, error) {
	s := &streams{pool: p}
	switch {
	case p.ram > 0:
		p.ram--
		if n := len(p.free); n > 0 {
			s.mem, p.free = p.free[n-1], p.free[:n-1]
		} else {
			s.mem = make([]float32, p.bytes()/4)
		}
	case p.disk > 0:
		if p.file == nil {
			f, err := os.CreateTemp(p.dir, "sb-calibrate-streams-")
			if err != nil {
				return nil, err
			}
			p.file = f
			if err := os.Remove(f.Name()); err != nil { // gone with the process
				return nil, err
			}
		}
		p.disk--
		if n := len(p.freeAt); n > 0 {
			s.at, p.freeAt = p.freeAt[n-1], p.freeAt[:n-1]
		} else if end, err := p.file.Seek(0, 2); err != nil {
			return nil, err
		} else if s.at = end; p.file.Truncate(end+p.bytes()) != nil {
			return nil, fmt.Errorf("%s: no room for %d more bytes", p.file.Name(), p.bytes())
		}
	default:
		return nil, fmt.Errorf("internal error: more residual streams than planned for")
	}
	return s, nil
}

// release gives the memory back.
func (s *streams) release() {
	if s == nil {
		return
	}
	if s.mem != nil {
		s.pool.ram++
		s.pool.free = append(s.pool.free, s.mem)
	} else {
		s.pool.disk++
		s.pool.freeAt = append(s.pool.freeAt, s.at)
	}
}

// get returns the rows of a sequence, valid until the pool's next get.
func (s *streams) get(seq int) ([]float32, error) {
	from, to := s.pool.starts[seq]*s.pool.hidden, s.pool.starts[seq+1]*s.pool.hidden
	if s.mem != nil {
		return s.mem[from:to], nil
	}
	rows := s.pool.buffer(to - from)
	_, err := s.pool.file.ReadAt(asBytes(rows), s.at+4*int64(from))
	return rows, err
}

// put sets the rows of a sequence by what fill writes.
func (s *streams) put(seq int, fill func(rows []float32) error) error {
	from, to := s.pool.starts[seq]*s.pool.hidden, s.pool.starts[seq+1]*s.pool.hidden
	if s.mem != nil {
		return fill(s.mem[from:to])
	}
	rows := s.pool.buffer(to - from)
	if err := fill(rows); err != nil {
		return err
	}
	_, err := s.pool.file.WriteAt(asBytes(rows), s.at+4*int64(from))
	return err
}

func (p *streamPool) buffer(n int) []float32 {
	if cap(p.buf) < n {
		p.buf = make([]float32, n)
	}
	return p.buf[:n]
}

func (p *streamPool) close() {
	if p.file != nil {
		p.file.Close()
	}
}

// asBytes views floats as they are in memory.
func asBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
