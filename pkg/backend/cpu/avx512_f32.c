// Products with float32 activations: weights are decoded to float32, each
// output is summed in 16 lanes over 512 columns, lanes are added, blocks of 512
// are added up. Many tokens share a decoded panel of 16 rows.
#include "avx512.h"

#ifdef SB_AVX512

#if defined(__GNUC__) && !defined(__clang__)
// GCC looks before it has unrolled the loops that fill accumulators.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// What weights are stored as: the width of codes, or one of these.
enum { BF16 = 16, F16 = 17, PLAIN = 32 };

static int kind_of(const sb_matrix *m) { return m->bits == 16 && m->f16 ? F16 : m->bits; }

// decoder turns the bytes of 16 codes into 16 integers: every lane gets the
// two bytes that hold its code, shifts and masks.
typedef struct {
	__m512i bytes, shifts, mask;
} decoder;

SB_VECTOR decoder decoder_of(int bits) {
	uint8_t bytes[64];
	uint32_t shifts[16];
	for (int i = 0; i < 16; i++) {
		for (int j = 0; j < 4; j++) bytes[4 * i + j] = (i * bits / 8 + (j < 2 ? j : 0)) & 63;
		shifts[i] = i * bits % 8;
	}
	return (decoder){_mm512_loadu_si512(bytes), _mm512_loadu_si512(shifts), _mm512_set1_epi32((1 << bits) - 1)};
}

// load_codes reads 16 codes, 2*bits bytes, as floats.
SB_VECTOR __m512 load_codes(const uint8_t *p, int bits, const decoder *d) {
	__m128i v = _mm_maskz_loadu_epi8((__mmask16)(0xffff >> (16 - 2 * bits)), p);
	__m512i q = _mm512_permutexvar_epi8(d->bytes, _mm512_castsi128_si512(v));
	q = _mm512_and_si512(_mm512_srlv_epi32(q, d->shifts), d->mask);
	return _mm512_cvtepi32_ps(q);
}

// load_dense reads up to 16 values at index i.
SB_VECTOR __m512 load_dense(const uint8_t *p, int i, __mmask16 mask, const int kind) {
	if (kind == PLAIN) return _mm512_maskz_loadu_ps(mask, (const float *)p + i);
	return load_16((const uint16_t *)p + i, mask, kind == F16);
}

typedef struct {
	const sb_matrix *m;
	const sb_input *in;
	const sb_task *task;
	int64_t row_bytes, groups; // of a row
} product;

static const float *x_row(const product *p, int token) {
	return p->in->x + (p->task->in ? p->task->in[token] : token) * p->in->stride;
}

static int width(const sb_matrix *m, int col) { return m->cols - col < SB_F32_COLS ? m->cols - col : SB_F32_COLS; }

// A block of up to 512 columns of 4 rows, with the scales of its groups.
typedef struct {
	const uint8_t *w[4];
	const float *x[6];
	int cols;
	float scale[4][SB_F32_COLS / 32], bias[4][SB_F32_COLS / 32];
} block;

// multiply adds the products of a block with n tokens to sum[token].
SB_VECTOR void multiply(const block *b, __m128 *sum, int group, const int kind, const int n) {
	__m512 acc[6][4];
	SB_UNROLL
	for (int t = 0; t < n; t++)
		SB_UNROLL
		for (int r = 0; r < 4; r++) acc[t][r] = _mm512_setzero_ps();
	if (kind < 16) {
		decoder d = decoder_of(kind);
		for (int g = 0, i = 0; i < b->cols; g++) {
			__m512 scale[4], bias[4];
			SB_UNROLL
			for (int r = 0; r < 4; r++) scale[r] = _mm512_set1_ps(b->scale[r][g]), bias[r] = _mm512_set1_ps(b->bias[r][g]);
			for (int end = i + group; i < end; i += 16) {
				__m512 v[4];
				SB_UNROLL
				for (int r = 0; r < 4; r++) v[r] = _mm512_fmadd_ps(load_codes(b->w[r] + i / 8 * kind, kind, &d), scale[r], bias[r]);
				SB_UNROLL
				for (int t = 0; t < n; t++) {
					__m512 x = _mm512_loadu_ps(b->x[t] + i);
					SB_UNROLL
					for (int r = 0; r < 4; r++) acc[t][r] = _mm512_fmadd_ps(v[r], x, acc[t][r]);
				}
			}
		}
	} else {
		int i = 0;
		for (; i + 16 <= b->cols; i += 16) {
			__m512 v[4];
			SB_UNROLL
			for (int r = 0; r < 4; r++) v[r] = load_dense(b->w[r], i, 0xffff, kind);
			SB_UNROLL
			for (int t = 0; t < n; t++) {
				__m512 x = _mm512_loadu_ps(b->x[t] + i);
				SB_UNROLL
				for (int r = 0; r < 4; r++) acc[t][r] = _mm512_fmadd_ps(v[r], x, acc[t][r]);
			}
		}
		if (i < b->cols) {
			__mmask16 mask = tail(b->cols - i);
			SB_UNROLL
			for (int t = 0; t < n; t++) {
				__m512 x = _mm512_maskz_loadu_ps(mask, b->x[t] + i);
				SB_UNROLL
				for (int r = 0; r < 4; r++) acc[t][r] = _mm512_fmadd_ps(load_dense(b->w[r], i, mask, kind), x, acc[t][r]);
			}
		}
	}
	SB_UNROLL
	for (int t = 0; t < n; t++) sum[t] = _mm_add_ps(sum[t], reduce4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
}

// rows4 decodes 4 rows on their way into the products with n tokens. Each row
// is read from its start to its end.
SB_VECTOR void rows4(const product *p, const int64_t *row, int token, __m128 *sum, const int kind, const int n) {
	const sb_matrix *m = p->m;
	block b;
	SB_UNROLL
	for (int r = 0; r < 4; r++) b.w[r] = m->data + row[r] * p->row_bytes;
	SB_UNROLL
	for (int t = 0; t < n; t++) b.x[t] = x_row(p, token + t);
	for (int col = 0; col < m->cols; col += SB_F32_COLS) {
		b.cols = width(m, col);
		if (kind < 16) {
			__mmask16 mask = tail(b.cols / m->group);
			SB_UNROLL
			for (int r = 0; r < 4; r++) {
				int64_t at = row[r] * p->groups + col / m->group;
				_mm512_storeu_ps(b.scale[r], load_16(m->scales + at, mask, m->f16));
				_mm512_storeu_ps(b.bias[r], load_16(m->biases + at, mask, m->f16));
			}
		}
		multiply(&b, sum, m->group, kind, n);
		SB_UNROLL
		for (int r = 0; r < 4; r++) b.w[r] += SB_F32_COLS * (kind == F16 ? 16 : kind) / 8;
		SB_UNROLL
		for (int t = 0; t < n; t++) b.x[t] += SB_F32_COLS;
	}
}

#define ROWS(kind) \
	SB_AVX512 static __attribute__((noinline)) void rows4_##kind(const product *p, const int64_t *row, int token, __m128 *sum, int n) { \
		if (n == 4) rows4(p, row, token, sum, kind, 4); \
		else if (n == 2) rows4(p, row, token, sum, kind, 2); \
		else rows4(p, row, token, sum, kind, 1); \
	}
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)
ROWS(8)
ROWS(BF16)
ROWS(F16)
ROWS(PLAIN)

typedef void (*rows_function)(const product *, const int64_t *, int, __m128 *, int);

static rows_function rows_of(int kind) {
	switch (kind) {
	case 2: return rows4_2;
	case 3: return rows4_3;
	case 4: return rows4_4;
	case 5: return rows4_5;
	case 6: return rows4_6;
	case 8: return rows4_8;
	case BF16: return rows4_BF16;
	case F16: return rows4_F16;
	default: return rows4_PLAIN;
	}
}

// few is for few tokens: weights are decoded anew for every four.
SB_AVX512 static void few(const product *p, int first, int rows, float (*sums)[SB_ROWS]) {
	rows_function rows4 = rows_of(kind_of(p->m));
	int tokens = p->task->tokens;
	for (int r = 0; r < rows; r += 4) {
		int64_t row[4];
		// Behind the last row, compute it again.
		for (int i = 0; i < 4; i++) row[i] = first + (r + i < rows ? r + i : rows - 1);
		for (int t = 0, n; t < tokens; t += n) {
			n = tokens - t >= 4 ? 4 : tokens - t >= 2 ? 2 : 1;
			__m128 sum[4];
			for (int i = 0; i < n; i++) sum[i] = _mm_loadu_ps(&sums[t + i][r]);
			rows4(p, row, t, sum, n);
			for (int i = 0; i < n; i++) _mm_storeu_ps(&sums[t + i][r], sum[i]);
		}
	}
}

// decode decodes n columns of a row from a column on.
SB_VECTOR void decode(float *dst, const product *p, int64_t row, int col, int n, const int kind) {
	const sb_matrix *m = p->m;
	const uint8_t *w = m->data + row * p->row_bytes;
	if (kind >= 16) {
		for (int i = 0; i < n; i += 16) {
			__mmask16 mask = tail(n - i);
			_mm512_mask_storeu_ps(dst + i, mask, load_dense(w, col + i, mask, kind));
		}
		return;
	}
	w += (int64_t)col * kind / 8;
	decoder d = decoder_of(kind);
	int64_t at = row * p->groups + col / m->group;
	for (int i = 0; i < n; at++) {
		__m512 scale = _mm512_set1_ps(_mm512_cvtss_f32(load_16(m->scales + at, 1, m->f16)));
		__m512 bias = _mm512_set1_ps(_mm512_cvtss_f32(load_16(m->biases + at, 1, m->f16)));
		for (int end = i + m->group; i < end; i += 16)
			_mm512_storeu_ps(dst + i, _mm512_fmadd_ps(load_codes(w + i / 8 * kind, kind, &d), scale, bias));
	}
}

SB_AVX512 static void decode_row(float *dst, const product *p, int64_t row, int col, int n) {
	switch (kind_of(p->m)) {
	case 2: decode(dst, p, row, col, n, 2); break;
	case 3: decode(dst, p, row, col, n, 3); break;
	case 4: decode(dst, p, row, col, n, 4); break;
	case 5: decode(dst, p, row, col, n, 5); break;
	case 6: decode(dst, p, row, col, n, 6); break;
	case 8: decode(dst, p, row, col, n, 8); break;
	case BF16: decode(dst, p, row, col, n, BF16); break;
	case F16: decode(dst, p, row, col, n, F16); break;
	default: decode(dst, p, row, col, n, PLAIN);
	}
}

static product product_of(const sb_matrix *m) {
	return (product){.m = m, .row_bytes = (int64_t)m->cols * m->bits / 8, .groups = m->bits < 16 ? m->cols / m->group : 0};
}

void sb_avx512_decode(float *dst, const sb_matrix *m, int row) {
	product p = product_of(m);
	decode_row(dst, &p, row, 0, m->cols);
}

// panel4 is the micro-kernel of many tokens: 4 decoded rows and up to 6 tokens,
// which is 24 accumulators.
SB_AVX512 static __attribute__((noinline)) void panel4(const block *b, __m128 *sum, int n) {
	switch (n) {
	case 6: multiply(b, sum, 0, PLAIN, 6); break;
	case 5: multiply(b, sum, 0, PLAIN, 5); break;
	case 4: multiply(b, sum, 0, PLAIN, 4); break;
	case 3: multiply(b, sum, 0, PLAIN, 3); break;
	case 2: multiply(b, sum, 0, PLAIN, 2); break;
	default: multiply(b, sum, 0, PLAIN, 1);
	}
}

// many decodes 512 columns of 16 rows once for all tokens.
SB_AVX512 static void many(sb_scratch *s, const product *p, int first, int rows, float (*sums)[SB_ROWS]) {
	int tokens = p->task->tokens;
	for (int col = 0; col < p->m->cols; col += SB_F32_COLS) {
		block b;
		b.cols = width(p->m, col);
		for (int r = 0; r < rows; r++) decode_row(s->panel.f32[r], p, first + r, col, b.cols);
		for (int t = 0, n; t < tokens; t += n) {
			n = tokens - t < 6 ? tokens - t : 6;
			for (int i = 0; i < n; i++) b.x[i] = x_row(p, t + i) + col;
			for (int r = 0; r < rows; r += 4) {
				for (int i = 0; i < 4; i++) b.w[i] = (const uint8_t *)s->panel.f32[r + i];
				__m128 sum[6];
				for (int i = 0; i < n; i++) sum[i] = _mm_loadu_ps(&sums[t + i][r]);
				panel4(&b, sum, n);
				for (int i = 0; i < n; i++) _mm_storeu_ps(&sums[t + i][r], sum[i]);
			}
		}
	}
}

void sb_avx512_f32(sb_scratch *s, const sb_matrix *m, const sb_input *in, const sb_task *t, int first, int rows, float (*sums)[SB_ROWS]) {
	product p = product_of(m);
	p.in = in, p.task = t;
	if (t->tokens < 8) few(&p, first, rows, sums);
	else many(s, &p, first, rows, sums);
}

#endif
