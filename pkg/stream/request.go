package stream

// A Request is one read of one record. The caller sets the exported fields
// down to Deadline and leaves the request alone between Submit and the return
// of Wait or Cancel.
type Request struct {
	File   File
	Offset int64
	// Buf takes the bytes. Where the file's Align asks for it, Buf's capacity
	// must reach the next multiple of it above its length, and its start be
	// such a multiple.
	Buf []byte
	// CRC is the checksum of Buf; Raw false means that Buf is compressed, and
	// the checksum is for who decompresses it.
	CRC uint32
	Raw bool
	// Class and Deadline decide who comes first: lower class, then lower
	// deadline, then the earlier Submit. Deadlines are ordinals of the run's
	// choice, such as the number of the op that needs the record.
	Class    Class
	Deadline int64

	// What happened, set when the request is done.
	Err       error
	ReadBytes int64 // taken from the file, alignment included
	QueueNs   int64 // between Submit and a worker
	TimeNs    int64 // of reading and checking

	done      chan struct{} // one slot, filled by the worker
	waiting   bool          // the caller's: submitted and not yet taken back
	awaited   bool          // served before all that are not
	index     int           // in the queue; -1: not there
	order     uint64        // of Submit
	submitted int64
}

// NewRequest returns a request that can be submitted once it is filled in.
func NewRequest() *Request {
	return &Request{done: make(chan struct{}, 1), index: -1}
}

// Pending reports whether the request is with the reader: submitted, and
// neither waited for nor cancelled yet.
func (q *Request) Pending() bool { return q.waiting }

// Ready reports whether Wait would return at once.
func (q *Request) Ready() bool { return !q.waiting || len(q.done) > 0 }

// before is the order of service.
func (q *Request) before(p *Request) bool {
	if q.awaited != p.awaited {
		return q.awaited
	}
	if q.Class != p.Class {
		return q.Class < p.Class
	}
	if q.Deadline != p.Deadline {
		return q.Deadline < p.Deadline
	}
	return q.order < p.order
}

// queue is a binary heap of requests, first to serve at 0. It knows where each
// is, so that any can be moved or taken out.
type queue []*Request

func (h *queue) push(q *Request) {
	q.index = len(*h)
	*h = append(*h, q)
	h.up(q.index)
}

func (h *queue) pop() *Request {
	q := (*h)[0]
	h.remove(q)
	return q
}

func (h *queue) remove(q *Request) {
	i, last := q.index, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.fix(i)
	}
	q.index = -1
}

// fix restores the order after the request at i changed.
func (h *queue) fix(i int) {
	h.up(i)
	h.down(i)
}

func (h *queue) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*h)[i].before((*h)[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *queue) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(*h); child++ {
			if (*h)[child].before((*h)[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		h.swap(i, first)
		i = first
	}
}

func (h *queue) swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}
