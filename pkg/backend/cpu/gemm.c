// c += a*b with every product and every sum rounded, terms in order of k: the
// same bits as backend.PlainGEMM. Files are compiled without contraction, so
// a product followed by a sum stays two operations.
#include "cpu.h"

static void gemm_scalar(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int m, int n, int k) {
	for (int i = 0; i < m; i++)
		for (int p = 0; p < k; p++) {
			float v = a[i * lda + p];
			for (int j = 0; j < n; j++) c[i * ldc + j] += v * b[p * ldb + j];
		}
}

#ifdef SB_AVX512
#include "avx512.h"

enum { GEMM_ROWS = 4, GEMM_VECTORS = 4 };

// gemm_block computes rows rows of up to 64 columns. rows is a constant where
// it is inlined, so that the sums stay in registers.
SB_VECTOR void gemm_block(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int n, int k, const int rows) {
	__mmask16 mask[GEMM_VECTORS];
	__m512 s[GEMM_ROWS][GEMM_VECTORS];
	for (int v = 0; v < GEMM_VECTORS; v++) mask[v] = n > 16 * v ? tail(n - 16 * v) : 0;
	SB_UNROLL for (int i = 0; i < rows; i++)
		SB_UNROLL for (int v = 0; v < GEMM_VECTORS; v++) s[i][v] = _mm512_maskz_loadu_ps(mask[v], c + i * ldc + 16 * v);
	for (int p = 0; p < k; p++) {
		__m512 w[GEMM_VECTORS];
		SB_UNROLL for (int v = 0; v < GEMM_VECTORS; v++) w[v] = _mm512_maskz_loadu_ps(mask[v], b + p * ldb + 16 * v);
		SB_UNROLL for (int i = 0; i < rows; i++) {
			__m512 x = _mm512_set1_ps(a[i * lda + p]);
			SB_UNROLL for (int v = 0; v < GEMM_VECTORS; v++) s[i][v] = _mm512_add_ps(s[i][v], _mm512_mul_ps(x, w[v]));
		}
	}
	SB_UNROLL for (int i = 0; i < rows; i++)
		SB_UNROLL for (int v = 0; v < GEMM_VECTORS; v++) _mm512_mask_storeu_ps(c + i * ldc + 16 * v, mask[v], s[i][v]);
}

SB_AVX512 static void gemm_avx512(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int m, int n, int k) {
	for (int j = 0; j < n; j += 16 * GEMM_VECTORS) {
		int i = 0;
		for (; i + GEMM_ROWS <= m; i += GEMM_ROWS) gemm_block(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, n - j, k, GEMM_ROWS);
		for (; i < m; i++) gemm_block(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, n - j, k, 1);
	}
}
#endif

void sb_gemm(const sb_kernels *kernels, float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int m, int n, int k) {
#ifdef SB_AVX512
	if (kernels != &sb_scalar) {
		gemm_avx512(c, ldc, a, lda, b, ldb, m, n, k);
		return;
	}
#endif
	(void)kernels;
	gemm_scalar(c, ldc, a, lda, b, ldb, m, n, k);
}
