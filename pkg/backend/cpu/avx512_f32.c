// Products with float32 activations: weights are decoded to float32, each
// output is summed in 16 lanes over 512 columns, lanes are added, blocks of 512
// are added up. Many tokens share a decoded panel of 16 rows.
#include "avx512.h"

#ifdef SB_AVX512

// What a row's 16 values come from.
enum { CODES, BF16, F16, PLAIN };

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

// One row of a matrix from some column on.
typedef struct {
	const void *p;
	const uint16_t *scale, *bias;
} source;

SB_VECTOR float one_16(const uint16_t *p, int f16) {
	if (f16) return _cvtsh_ss(*p);
	return as_float((uint32_t)*p << 16);
}

SB_VECTOR __m512 load_values(const source *s, int kind, int at, __mmask16 mask) {
	if (kind == PLAIN) return _mm512_maskz_loadu_ps(mask, (const float *)s->p + at);
	return load_16((const uint16_t *)s->p + at, mask, kind == F16);
}

// dense adds, to sum[token], 4 rows of n columns for a number of tokens.
SB_VECTOR void dense(const source *w, const float *const *x, __m128 *sum, int n, const int kind, const int tokens) {
	__m512 acc[6][4];
	for (int t = 0; t < tokens; t++)
		for (int r = 0; r < 4; r++) acc[t][r] = _mm512_setzero_ps();
	int i = 0;
	for (; i + 16 <= n; i += 16) {
		__m512 v[4];
		for (int r = 0; r < 4; r++) v[r] = load_values(&w[r], kind, i, 0xffff);
		for (int t = 0; t < tokens; t++) {
			__m512 u = _mm512_loadu_ps(x[t] + i);
			for (int r = 0; r < 4; r++) acc[t][r] = _mm512_fmadd_ps(v[r], u, acc[t][r]);
		}
	}
	if (i < n) {
		__mmask16 mask = tail(n - i);
		__m512 v[4];
		for (int r = 0; r < 4; r++) v[r] = load_values(&w[r], kind, i, mask);
		for (int t = 0; t < tokens; t++) {
			__m512 u = _mm512_maskz_loadu_ps(mask, x[t] + i);
			for (int r = 0; r < 4; r++) acc[t][r] = _mm512_fmadd_ps(v[r], u, acc[t][r]);
		}
	}
	for (int t = 0; t < tokens; t++) sum[t] = _mm_add_ps(sum[t], reduce4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
}

// coded is the same for codes; n is a multiple of 32.
SB_VECTOR void coded(const source *w, const float *const *x, __m128 *sum, int n, int group, int f16, const int bits, const int tokens) {
	decoder d = decoder_of(bits);
	__m512 acc[4][4];
	for (int t = 0; t < tokens; t++)
		for (int r = 0; r < 4; r++) acc[t][r] = _mm512_setzero_ps();
	for (int g = 0, i = 0; i < n; g++) {
		__m512 scale[4], bias[4];
		for (int r = 0; r < 4; r++) {
			scale[r] = _mm512_set1_ps(one_16(w[r].scale + g, f16));
			bias[r] = _mm512_set1_ps(one_16(w[r].bias + g, f16));
		}
		int end = i + group < n ? i + group : n;
		for (; i < end; i += 16) {
			__m512 v[4];
			for (int r = 0; r < 4; r++)
				v[r] = _mm512_fmadd_ps(load_codes((const uint8_t *)w[r].p + i / 8 * bits, bits, &d), scale[r], bias[r]);
			for (int t = 0; t < tokens; t++) {
				__m512 u = _mm512_loadu_ps(x[t] + i);
				for (int r = 0; r < 4; r++) acc[t][r] = _mm512_fmadd_ps(v[r], u, acc[t][r]);
			}
		}
	}
	for (int t = 0; t < tokens; t++) sum[t] = _mm_add_ps(sum[t], reduce4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
}

typedef void (*tile_function)(const source *, const float *const *, __m128 *, int n, int group, int f16, int tokens);

#define DENSE(name, kind) \
	SB_AVX512 static __attribute__((noinline)) void name(const source *w, const float *const *x, __m128 *sum, int n, int group, int f16, int tokens) { \
		(void)group, (void)f16; \
		if (tokens == 4) dense(w, x, sum, n, kind, 4); \
		else if (tokens == 2) dense(w, x, sum, n, kind, 2); \
		else dense(w, x, sum, n, kind, 1); \
	}
DENSE(tile_bf16, BF16)
DENSE(tile_f16, F16)
DENSE(tile_plain, PLAIN)

#define CODED(bits) \
	SB_AVX512 static __attribute__((noinline)) void tile_##bits(const source *w, const float *const *x, __m128 *sum, int n, int group, int f16, int tokens) { \
		if (tokens == 4) coded(w, x, sum, n, group, f16, bits, 4); \
		else if (tokens == 2) coded(w, x, sum, n, group, f16, bits, 2); \
		else coded(w, x, sum, n, group, f16, bits, 1); \
	}
CODED(2)
CODED(3)
CODED(4)
CODED(5)
CODED(6)
CODED(8)

static tile_function tile_of(const sb_matrix *m) {
	switch (m->bits) {
	case 2: return tile_2;
	case 3: return tile_3;
	case 4: return tile_4;
	case 5: return tile_5;
	case 6: return tile_6;
	case 8: return tile_8;
	case 16: return m->f16 ? tile_f16 : tile_bf16;
	default: return tile_plain;
	}
}

static source source_at(const sb_matrix *m, int64_t row, int col) {
	source s = {m->data + (row * m->cols + col) * m->bits / 8, NULL, NULL};
	if (m->bits < 16) {
		int64_t g = row * (m->cols / m->group) + col / m->group;
		s.scale = m->scales + g, s.bias = m->biases + g;
	}
	return s;
}

static const float *x_at(const sb_input *in, const sb_task *task, int token, int col) {
	return in->x + (task->in ? task->in[token] : token) * in->stride + col;
}

static int width(const sb_matrix *m, int col) { return m->cols - col < SB_F32_COLS ? m->cols - col : SB_F32_COLS; }

// few decodes weights on their way into the product.
SB_AVX512 static void few(const sb_matrix *m, const sb_input *in, const sb_task *task, int first, int rows, float (*sums)[SB_ROWS]) {
	tile_function tile = tile_of(m);
	for (int r = 0; r < rows; r += 4)
		for (int t = 0, n; t < task->tokens; t += n) {
			n = task->tokens - t >= 4 ? 4 : task->tokens - t >= 2 ? 2 : 1;
			__m128 sum[4];
			for (int i = 0; i < n; i++) sum[i] = _mm_loadu_ps(&sums[t + i][r]);
			for (int col = 0; col < m->cols; col += SB_F32_COLS) {
				source w[4];
				// Behind the last row, compute it again.
				for (int i = 0; i < 4; i++) w[i] = source_at(m, first + (r + i < rows ? r + i : rows - 1), col);
				const float *x[4];
				for (int i = 0; i < n; i++) x[i] = x_at(in, task, t + i, col);
				tile(w, x, sum, width(m, col), m->group, m->f16, n);
			}
			for (int i = 0; i < n; i++) _mm_storeu_ps(&sums[t + i][r], sum[i]);
		}
}

SB_AVX512 static void decode_dense(float *dst, const source *w, int n, int kind) {
	for (int i = 0; i < n; i += 16) {
		__mmask16 mask = tail(n - i);
		_mm512_mask_storeu_ps(dst + i, mask, load_values(w, kind, i, mask));
	}
}

SB_VECTOR void decode_coded(float *dst, const source *w, int n, int group, int f16, const int bits) {
	decoder d = decoder_of(bits);
	for (int g = 0, i = 0; i < n; g++) {
		__m512 scale = _mm512_set1_ps(one_16(w->scale + g, f16)), bias = _mm512_set1_ps(one_16(w->bias + g, f16));
		int end = i + group < n ? i + group : n;
		for (; i < end; i += 16)
			_mm512_storeu_ps(dst + i, _mm512_fmadd_ps(load_codes((const uint8_t *)w->p + i / 8 * bits, bits, &d), scale, bias));
	}
}

// decode_block decodes n columns of a row from a column on.
SB_AVX512 static void decode_block(float *dst, const sb_matrix *m, int64_t row, int col, int n) {
	source w = source_at(m, row, col);
	switch (m->bits) {
	case 2: decode_coded(dst, &w, n, m->group, m->f16, 2); break;
	case 3: decode_coded(dst, &w, n, m->group, m->f16, 3); break;
	case 4: decode_coded(dst, &w, n, m->group, m->f16, 4); break;
	case 5: decode_coded(dst, &w, n, m->group, m->f16, 5); break;
	case 6: decode_coded(dst, &w, n, m->group, m->f16, 6); break;
	case 8: decode_coded(dst, &w, n, m->group, m->f16, 8); break;
	case 16: decode_dense(dst, &w, n, m->f16 ? F16 : BF16); break;
	default: decode_dense(dst, &w, n, PLAIN);
	}
}

void sb_avx512_decode(float *dst, const sb_matrix *m, int row) { decode_block(dst, m, row, 0, m->cols); }

// tile_many is the micro-kernel of many tokens: 4 rows of a panel, up to 6
// tokens, 24 accumulators.
SB_AVX512 static __attribute__((noinline)) void tile_many(const source *w, const float *const *x, __m128 *sum, int n, int tokens) {
	switch (tokens) {
	case 6: dense(w, x, sum, n, PLAIN, 6); break;
	case 5: dense(w, x, sum, n, PLAIN, 5); break;
	case 4: dense(w, x, sum, n, PLAIN, 4); break;
	case 3: dense(w, x, sum, n, PLAIN, 3); break;
	case 2: dense(w, x, sum, n, PLAIN, 2); break;
	default: dense(w, x, sum, n, PLAIN, 1);
	}
}

// many decodes 512 columns of 16 rows once for all tokens.
SB_AVX512 static void many(sb_scratch *s, const sb_matrix *m, const sb_input *in, const sb_task *task, int first, int rows, float (*sums)[SB_ROWS]) {
	for (int col = 0; col < m->cols; col += SB_F32_COLS) {
		int cols = width(m, col);
		for (int r = 0; r < rows; r++) decode_block(s->panel.f32[r], m, first + r, col, cols);
		for (int t = 0, n; t < task->tokens; t += n) {
			n = task->tokens - t < 6 ? task->tokens - t : 6;
			const float *x[6];
			for (int i = 0; i < n; i++) x[i] = x_at(in, task, t + i, col);
			for (int r = 0; r < rows; r += 4) {
				source w[4];
				for (int i = 0; i < 4; i++) w[i].p = s->panel.f32[r + i];
				__m128 sum[6];
				for (int i = 0; i < n; i++) sum[i] = _mm_loadu_ps(&sums[t + i][r]);
				tile_many(w, x, sum, cols, n);
				for (int i = 0; i < n; i++) _mm_storeu_ps(&sums[t + i][r], sum[i]);
			}
		}
	}
}

void sb_avx512_f32(sb_scratch *s, const sb_matrix *m, const sb_input *in, const sb_task *task, int first, int rows, float (*sums)[SB_ROWS]) {
	if (task->tokens < 8) few(m, in, task, first, rows, sums);
	else many(s, m, in, task, first, rows, sums);
}

#endif
