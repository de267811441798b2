// What the AVX-512 kernels share.
#include "ops.h"

#ifdef SB_AVX512
#include <immintrin.h>

// Loops over accumulators must be unrolled early, or GCC keeps them in memory.
#define SB_UNROLL _Pragma("GCC unroll 8")
#define SB_VECTOR static inline __attribute__((always_inline)) SB_AVX512

// tail is the mask of the first n of 16 lanes, n >= 0.
SB_VECTOR __mmask16 tail(int n) { return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1); }

// reduce4 returns the sums of the lanes of four vectors, each added in one
// order: lanes 8 apart, then 4, 2 and 1.
SB_VECTOR __m128 reduce4(__m512 a, __m512 b, __m512 c, __m512 d) {
	__m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
	__m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
	__m512 s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
	s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
	s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
	const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, s));
}

// load_16 reads up to 16 16-bit floats.
SB_VECTOR __m512 load_16(const uint16_t *p, __mmask16 mask, int f16) {
	__m256i h = _mm256_maskz_loadu_epi16(mask, p);
	return f16 ? _mm512_cvtph_ps(h) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

void sb_avx512_f32(sb_scratch *, const sb_matrix *, const sb_input *, const sb_task *, int first, int rows, float (*sums)[SB_ROWS]);
void sb_avx512_int8(sb_scratch *, const sb_matrix *, const sb_input *, const sb_task *, int first, int rows, float (*sums)[SB_ROWS]);
void sb_avx512_decode(float *dst, const sb_matrix *, int row);
void sb_avx512_attend(sb_scratch *, const sb_attention *, int row, int head, int n);
#endif
