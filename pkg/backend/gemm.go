package backend

// GEMM adds a product of matrices, c += a*b, where c is [m, n], a [m, k] and b
// [k, n], row-major with rows ldc, lda and ldb floats apart. It adds the terms
// of an element one after the other, in order of k, and rounds each product
// and each sum to float32: every implementation gives the same bits, on every
// processor, whatever the blocks that the caller cuts its matrices into.
// That is what lets calibration and sb-pack make the same codes on different
// machines. It may be called by several goroutines at once.
type GEMM func(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, n, k int)

// PlainGEMM is the slow, obviously right GEMM.
func PlainGEMM(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, n, k int) {
	for i := range m {
		row := c[i*ldc:][:n]
		for p := range k {
			v := a[i*lda+p]
			for j, w := range b[p*ldb:][:n] {
				row[j] += float32(v * w) // the conversion forbids fusing
			}
		}
	}
}
