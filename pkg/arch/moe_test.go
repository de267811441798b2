package arch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGroup compares the counting sort with the definition: an expert's rows
// are the rows of x that chose it, in order, and its output rows are the
// choices' places.
func TestGroup(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const experts, topK, chunk = 7, 3, 20
	var r Routes
	r.init(experts, topK, chunk)
	for _, rows := range []int{1, 5, chunk, 2} {
		for i := range rows {
			for j, e := range rng.Perm(experts)[:topK] {
				r.IDs[i*topK+j] = int32(e)
				r.Weights[i*topK+j] = rng.Float32()
			}
		}
		r.group(rows)
		var distinct []int32
		for e := range int32(experts) {
			var in, out []int32
			var mass float64
			for i, id := range r.IDs[:rows*topK] {
				if id == e {
					in, out = append(in, int32(i/topK)), append(out, int32(i))
					mass += float64(r.Weights[i])
				}
			}
			if len(in) > 0 {
				distinct = append(distinct, e)
			}
			if got := r.Rows(e); !slices.Equal(got, in) {
				t.Errorf("%d rows, expert %d: rows %v, want %v", rows, e, got, in)
			}
			if got := r.out[r.start[e]:r.start[e+1]]; !slices.Equal(got, out) {
				t.Errorf("%d rows, expert %d: places %v, want %v", rows, e, got, out)
			}
			if math.Abs(r.Mass(e)-mass) > 1e-9 {
				t.Errorf("%d rows, expert %d: mass %g, want %g", rows, e, r.Mass(e), mass)
			}
		}
		if !slices.Equal(r.Experts, distinct) {
			t.Errorf("%d rows: experts %v, want %v", rows, r.Experts, distinct)
		}
	}
	if n := testing.AllocsPerRun(10, func() { r.group(chunk) }); n != 0 {
		t.Errorf("grouping allocates %g times", n)
	}
}
