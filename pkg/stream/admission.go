package stream

import "time"

// windowSpan is the time over which the rate of reads is watched. It is some
// reads of a MiB long on a slow disk, and shorter than a token on a fast one.
const windowSpan = 250 * time.Millisecond

// window decides which of the reads that nobody waits for may begin: a
// promotion while what began within the last windowSpan stays below the disk's
// rate, a look-ahead while it stays below half of that. Demand and prefetch are
// always admitted, and counted. So work that may prove useless never makes the
// rest wait in a queue of the disk's own, where no deadline counts any more.
//
// It is a sliding window over the reads that began, kept in a fixed ring.
type window struct {
	rate  int64 // bytes per second; 0: everything is admitted
	began [256]struct{ at, bytes int64 }
	first int
	n     int
	sum   int64
}

// share is the part of the rate, as a divisor, that a class may fill up to.
func (c Class) share() int64 {
	switch c {
	case Promotion:
		return 1
	case LookAhead:
		return 2
	}
	return 0 // no bound
}

// slide forgets what began before the window.
func (w *window) slide(now int64) {
	for w.n > 0 && w.began[w.first].at <= now-int64(windowSpan) {
		w.sum -= w.began[w.first].bytes
		w.first = (w.first + 1) % len(w.began)
		w.n--
	}
}

// admit returns 0 if a read may begin now, else how many nanoseconds later to
// ask again. One that is larger than its share of the whole window begins when
// nothing else is in it.
func (w *window) admit(now, bytes int64, class Class) int64 {
	share := class.share()
	if w.rate == 0 || share == 0 {
		return 0
	}
	w.slide(now)
	room := int64(float64(w.rate) * windowSpan.Seconds() / float64(share))
	if w.n == 0 || w.sum+bytes <= room {
		return 0
	}
	// Until enough has slid out.
	sum := w.sum
	for i := range w.n {
		b := &w.began[(w.first+i)%len(w.began)]
		if sum -= b.bytes; sum+bytes <= room || i == w.n-1 {
			return b.at + int64(windowSpan) - now
		}
	}
	return 0
}

// note counts a read that begins.
func (w *window) note(now, bytes int64) {
	if w.rate == 0 {
		return
	}
	w.slide(now)
	w.sum += bytes
	if w.n == len(w.began) { // the last ones count as if they had begun together
		b := &w.began[(w.first+w.n-1)%len(w.began)]
		b.at, b.bytes = now, b.bytes+bytes
		return
	}
	w.began[(w.first+w.n)%len(w.began)] = struct{ at, bytes int64 }{now, bytes}
	w.n++
}
