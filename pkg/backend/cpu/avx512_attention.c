// Attention of one query row over one key-value head, for some heads that share
// it: scores of 64 positions, a running maximum, weighted values.
#include "avx512.h"

#ifdef SB_AVX512

#if defined(__GNUC__) && !defined(__clang__)
// GCC looks before it has unrolled the loops that fill accumulators.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

SB_VECTOR __m512 load_kv(const void *p, int64_t at, __mmask16 mask, int f16) {
	if (f16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)p + at));
	return _mm512_maskz_loadu_ps(mask, (const float *)p + at);
}

// scores sets p[h][i] to q[h] . k[i] for 4 positions and n heads. whole: heads
// are whole vectors.
SB_VECTOR void scores(float (*p)[SB_KEYS], const float *q, const void *k, const int64_t *at, int d, const int f16, const int n, const int whole) {
	__m512 acc[4][4];
	SB_UNROLL
	for (int h = 0; h < n; h++)
		SB_UNROLL
		for (int i = 0; i < 4; i++) acc[h][i] = _mm512_setzero_ps();
	for (int j = 0; j < d; j += 16) {
		__mmask16 mask = whole ? 0xffff : tail(d - j);
		__m512 key[4];
		SB_UNROLL
		for (int i = 0; i < 4; i++) key[i] = load_kv(k, at[i] + j, mask, f16);
		SB_UNROLL
		for (int h = 0; h < n; h++) {
			__m512 v = _mm512_maskz_loadu_ps(mask, q + h * d + j);
			SB_UNROLL
			for (int i = 0; i < 4; i++) acc[h][i] = _mm512_fmadd_ps(v, key[i], acc[h][i]);
		}
	}
	SB_UNROLL
	for (int h = 0; h < n; h++) _mm_storeu_ps(p[h], reduce4(acc[h][0], acc[h][1], acc[h][2], acc[h][3]));
}

// softmax turns the scores of positions [lo, hi) of a block into weights under
// the running maximum and total; it returns the factor for older sums.
SB_VECTOR float softmax(float *p, int lo, int hi, float scale, float *highest, float *total) {
	uint64_t valid = ~0ull << lo & ~0ull >> (SB_KEYS - hi);
	__m512 v[SB_KEYS / 16], top = _mm512_set1_ps(*highest);
	SB_UNROLL
	for (int i = 0; i < SB_KEYS / 16; i++) {
		__m512 score = _mm512_mul_ps(_mm512_loadu_ps(p + 16 * i), _mm512_set1_ps(scale));
		v[i] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(valid >> 16 * i), score);
		top = _mm512_max_ps(v[i], top); // a NaN is passed over
	}
	float most = _mm512_reduce_max_ps(top), shrink = sb_exp(*highest - most), lane[16] = {0};
	SB_UNROLL
	for (int i = 0; i < SB_KEYS / 16; i++) _mm512_storeu_ps(p + 16 * i, _mm512_sub_ps(v[i], _mm512_set1_ps(most)));
	for (int i = 0; i < SB_KEYS; i++) p[i] = sb_exp(p[i]);
	for (int i = 0; i < SB_KEYS; i += 16)
		for (int j = 0; j < 16; j++) lane[j] += p[i + j];
	*highest = most;
	*total = *total * shrink + sum16(lane);
	return shrink;
}

// values adds, for n heads, the values of positions [lo, hi) weighted by p to
// sums, which shrink first: columns [j, j + 16*wide).
SB_VECTOR void values(sb_scratch *s, float (*p)[SB_KEYS], const float *shrink, const void *v, int64_t at, int j, int lo, int hi, int d, __mmask16 mask, const int f16, const int n, const int wide) {
	__m512 sum[4][2];
	SB_UNROLL
	for (int h = 0; h < n; h++)
		SB_UNROLL
		for (int k = 0; k < wide; k++)
			sum[h][k] = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, s->sum[h] + j + 16 * k), _mm512_set1_ps(shrink[h]));
	for (int i = lo; i < hi; i++) {
		__m512 x[2];
		SB_UNROLL
		for (int k = 0; k < wide; k++) x[k] = load_kv(v, at + (int64_t)i * d + j + 16 * k, mask, f16);
		SB_UNROLL
		for (int h = 0; h < n; h++) {
			__m512 w = _mm512_set1_ps(p[h][i]);
			SB_UNROLL
			for (int k = 0; k < wide; k++) sum[h][k] = _mm512_fmadd_ps(x[k], w, sum[h][k]);
		}
	}
	SB_UNROLL
	for (int h = 0; h < n; h++)
		SB_UNROLL
		for (int k = 0; k < wide; k++) _mm512_mask_storeu_ps(s->sum[h] + j + 16 * k, mask, sum[h][k]);
}

// heads computes n heads with one reading of keys and values.
SB_VECTOR void heads(sb_scratch *s, const sb_attention *a, int row, int head, const int f16, const int n, const int whole) {
	const sb_kv *kv = a->kv;
	int d = kv->head_dim, last = kv->value_dim;
	int64_t base = (int64_t)(head / (a->heads / kv->kv_heads)) * kv->context;
	int64_t at = (int64_t)row * a->heads + head;
	int end = a->pos + row + 1, first = a->window && end > a->window ? end - a->window : 0;
	float highest[4], total[4], shrink[4];
	for (int h = 0; h < n; h++) {
		highest[h] = -INFINITY, total[h] = 0;
		if (a->sinks) highest[h] = a->sinks[head + h], total[h] = 1;
		memset(s->sum[h], 0, last * sizeof(float));
	}
	for (int from = first / SB_KEYS * SB_KEYS; from < end; from += SB_KEYS) {
		float p[4][SB_KEYS];
		int lo = from < first ? first - from : 0, hi = end - from < SB_KEYS ? end - from : SB_KEYS;
		for (int i = lo / 4 * 4; i < hi; i += 4) {
			int64_t key[4];
			// At the ends, compute a neighbour again; softmax leaves it out.
			for (int j = 0; j < 4; j++) key[j] = (base + from + (i + j < lo ? lo : i + j < hi ? i + j : hi - 1)) * d;
			scores((float(*)[SB_KEYS])&p[0][i], a->q + at * d, kv->k, key, d, f16, n, whole);
		}
		for (int h = 0; h < n; h++) shrink[h] = softmax(p[h], lo, hi, a->scale, &highest[h], &total[h]);
		int j = 0;
		for (; j + 32 <= last; j += 32) values(s, p, shrink, kv->v, (base + from) * d, j, lo, hi, d, 0xffff, f16, n, 2);
		for (; j < last; j += 16) values(s, p, shrink, kv->v, (base + from) * d, j, lo, hi, d, tail(last - j), f16, n, 1);
	}
	for (int h = 0; h < n; h++)
		for (int j = 0; j < last; j++) a->y[(at + h) * last + j] = s->sum[h][j] / total[h];
}

#define HEADS(n) \
	SB_AVX512 static __attribute__((noinline)) void heads_##n(sb_scratch *s, const sb_attention *a, int row, int head) { \
		int whole = a->kv->head_dim % 16 == 0; \
		if (a->kv->f16 && whole) heads(s, a, row, head, 1, n, 1); \
		else if (a->kv->f16) heads(s, a, row, head, 1, n, 0); \
		else if (whole) heads(s, a, row, head, 0, n, 1); \
		else heads(s, a, row, head, 0, n, 0); \
	}
HEADS(1)
HEADS(2)
HEADS(3)
HEADS(4)

void sb_avx512_attend(sb_scratch *s, const sb_attention *a, int row, int head, int n) {
	switch (n) {
	case 4: heads_4(s, a, row, head); break;
	case 3: heads_3(s, a, row, head); break;
	case 2: heads_2(s, a, row, head); break;
	default: heads_1(s, a, row, head);
	}
}

#endif
