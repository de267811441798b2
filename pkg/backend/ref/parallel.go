package ref

import "sync"

// parallel calls f on ranges that cover [0, n). Every index is computed by one
// goroutine and none reads another's results, so the split changes nothing.
// cost is the number of elementary operations of one index.
func (b *Backend) parallel(n, cost int, f func(s *worker, lo, hi int)) {
	const worthwhile = 1 << 16 // operations that pay for a goroutine
	threads := min(len(b.workers), n, 1+n*cost/worthwhile)
	if threads <= 1 {
		f(&b.workers[0], 0, n)
		return
	}
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() { f(&b.workers[i], n*i/threads, n*(i+1)/threads) })
	}
	wg.Wait()
}
