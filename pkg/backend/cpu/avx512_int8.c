// Products of codes with activations rounded to 8 bits.
//
// 64 codes of any width are 8*bits bytes, eight codes `bits` bytes: one byte
// permutation gives every quadword its eight codes, a multishift gives every
// byte its code, and vpdpbusd multiplies them with x, adding fours. What is
// left per 64 codes is a conversion and a fused multiply-add with scale*sx.
#include "avx512.h"

#ifdef SB_AVX512

#if defined(__GNUC__) && !defined(__clang__)
// GCC looks before it has unrolled the loops that fill accumulators.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// decoder turns the bytes of 64 codes into 64 bytes.
typedef struct {
	__m512i bytes, shifts, mask;
} decoder;

SB_VECTOR decoder decoder_of(int bits) {
	uint8_t bytes[64], shifts[64];
	for (int i = 0; i < 64; i++) {
		bytes[i] = (i / 8 * bits + i % 8) & 63;
		shifts[i] = i % 8 * bits;
	}
	return (decoder){_mm512_loadu_si512(bytes), _mm512_loadu_si512(shifts), _mm512_set1_epi8((char)((1 << bits) - 1))};
}

// load_codes reads a chunk, or its first half, and no byte behind it.
SB_VECTOR __m512i load_codes(const uint8_t *p, int bits, int half) {
	if (!half) {
		if (bits == 2) return _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
		if (bits == 4) return _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
		if (bits == 8) return _mm512_loadu_si512(p);
	}
	return _mm512_maskz_loadu_epi8(~0ull >> (64 - (half ? 4 : 8) * bits), p);
}

SB_VECTOR __m512i decode(__m512i v, int bits, const decoder *d) {
	if (bits == 8) return v;
	v = _mm512_permutexvar_epi8(d->bytes, v);
	return _mm512_and_si512(_mm512_multishift_epi64_epi8(d->shifts, v), d->mask);
}

// A superblock of up to 1024 columns of 4 rows, for n tokens.
typedef struct {
	const uint8_t *code[4];
	const int8_t *x[4];
	int chunks; // of 64 codes
	int half;   // 1: half a chunk follows
	// How far ahead to fetch codes: where the next four rows lie. Rows are
	// too short for the hardware to see a stream in each.
	int64_t ahead;
} superblock;

// Scales of codes times scales of x, and sums so far. With groups of 32 a
// chunk has two factors.
typedef struct {
	_Alignas(64) float factor[4][4][SB_INT8_COLS / 32]; // [token][row]
	__m512 acc[4][4];
} state;

// multiply adds a superblock's products.
SB_VECTOR void multiply(state *s, const superblock *b, const decoder *d, const int bits, const int halves, const int n, const int fetch) {
	__m512 acc[4][4];
	SB_UNROLL
	for (int t = 0; t < n; t++)
		SB_UNROLL
		for (int r = 0; r < 4; r++) acc[t][r] = s->acc[t][r];
	const int steps = b->chunks + (halves ? b->half : 0);
	for (int c = 0; c < steps; c++) {
		__m512i w[4];
		SB_UNROLL
		for (int r = 0; r < 4; r++) {
			const uint8_t *p = b->code[r] + (int64_t)c * 8 * bits;
			if (fetch) _mm_prefetch((const char *)p + b->ahead, _MM_HINT_T0);
			w[r] = decode(halves && c == b->chunks ? load_codes(p, bits, 1) : load_codes(p, bits, 0), bits, d);
		}
		SB_UNROLL
		for (int t = 0; t < n; t++) {
			__m512i q = _mm512_loadu_si512(b->x[t] + c * 64);
			SB_UNROLL
			for (int r = 0; r < 4; r++) {
				__m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), w[r], q));
				__m512 f = _mm512_set1_ps(s->factor[t][r][halves ? 2 * c : c]);
				if (halves) f = _mm512_mask_broadcastss_ps(f, 0xff00, _mm_load_ss(&s->factor[t][r][2 * c + 1]));
				acc[t][r] = _mm512_fmadd_ps(dot, f, acc[t][r]);
			}
		}
	}
	SB_UNROLL
	for (int t = 0; t < n; t++)
		SB_UNROLL
		for (int r = 0; r < 4; r++) s->acc[t][r] = acc[t][r];
}

typedef struct {
	const sb_matrix *m;
	const sb_int8 *x;
	const sb_task *task;
	int halves;
	int64_t row_bytes, groups; // of a row
} product;

static int64_t x_row(const product *p, int token) { return p->task->rounded ? p->task->rounded[token] : token; }

static int width(const sb_matrix *m, int col) { return m->cols - col < SB_INT8_COLS ? m->cols - col : SB_INT8_COLS; }

// load_factors reads 16 scales or biases, one per chunk, or half chunk for
// groups of 32, of which n exist.
SB_VECTOR __m512 load_factors(const uint16_t *p, int n, const sb_matrix *m) {
	if (m->group != 128) return load_16(p, tail(n), m->f16);
	const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
	return _mm512_permutexvar_ps(twice, load_16(p, tail((n + 1) / 2), m->f16));
}

// rows4 decodes the codes of 4 rows on their way into the products with n
// tokens. Each row is read from its start to its end.
SB_VECTOR void rows4(const product *p, const int64_t *row, int token, __m128 *sum, const int bits, const int halves, const int n) {
	const sb_matrix *m = p->m;
	const int per = halves ? 32 : 64; // columns per factor
	decoder d = decoder_of(bits);
	superblock b;
	state s;
	const uint16_t *scale[4], *bias[4];
	const float *sx[4], *sums[4];
	b.ahead = 4 * p->row_bytes;
	SB_UNROLL
	for (int r = 0; r < 4; r++) {
		b.code[r] = m->data + row[r] * p->row_bytes;
		scale[r] = m->scales + row[r] * p->groups, bias[r] = m->biases + row[r] * p->groups;
	}
	SB_UNROLL
	for (int t = 0; t < n; t++) {
		int64_t at = x_row(p, token + t);
		b.x[t] = p->x->q + at * p->x->q_stride;
		sx[t] = p->x->scale + at * p->x->s_stride, sums[t] = p->x->sum + at * p->x->s_stride;
	}
	const int64_t step = halves ? 32 : m->group == 64 ? 16 : 8; // scales in a superblock
	for (int col = 0; col < m->cols; col += SB_INT8_COLS) {
		int cols = width(m, col);
		b.chunks = cols / 64, b.half = cols % 64 != 0;
		SB_UNROLL
		for (int r = 0; r < 4; r++) {
			__m512 ws = load_factors(scale[r], cols / per, m), wb = load_factors(bias[r], cols / per, m);
			_mm_prefetch((const char *)(scale[r] + 4 * p->groups), _MM_HINT_T0);
			_mm_prefetch((const char *)(bias[r] + 4 * p->groups), _MM_HINT_T0);
			SB_UNROLL
			for (int t = 0; t < n; t++) {
				_mm512_store_ps(s.factor[t][r], _mm512_mul_ps(ws, _mm512_loadu_ps(sx[t])));
				s.acc[t][r] = _mm512_mul_ps(wb, _mm512_loadu_ps(sums[t]));
			}
			if (halves && cols > 16 * per) {
				ws = load_factors(scale[r] + 16, cols / per - 16, m), wb = load_factors(bias[r] + 16, cols / per - 16, m);
				SB_UNROLL
				for (int t = 0; t < n; t++) {
					_mm512_store_ps(s.factor[t][r] + 16, _mm512_mul_ps(ws, _mm512_loadu_ps(sx[t] + 16)));
					s.acc[t][r] = _mm512_fmadd_ps(wb, _mm512_loadu_ps(sums[t] + 16), s.acc[t][r]);
				}
			}
			scale[r] += step, bias[r] += step;
		}
		multiply(&s, &b, &d, bits, halves, n, 1);
		SB_UNROLL
		for (int t = 0; t < n; t++) {
			sum[t] = _mm_add_ps(sum[t], reduce4(s.acc[t][0], s.acc[t][1], s.acc[t][2], s.acc[t][3]));
			b.x[t] += SB_INT8_COLS;
			sx[t] += SB_INT8_COLS / per, sums[t] += SB_INT8_COLS / per;
		}
		SB_UNROLL
		for (int r = 0; r < 4; r++) b.code[r] += SB_INT8_COLS * bits / 8;
	}
}

#define ROWS(bits) \
	SB_AVX512 static __attribute__((noinline)) void rows4_##bits(const product *p, const int64_t *row, int token, __m128 *sum, int n) { \
		if (p->halves) { \
			if (n == 4) rows4(p, row, token, sum, bits, 1, 4); \
			else if (n == 2) rows4(p, row, token, sum, bits, 1, 2); \
			else rows4(p, row, token, sum, bits, 1, 1); \
		} else { \
			if (n == 4) rows4(p, row, token, sum, bits, 0, 4); \
			else if (n == 2) rows4(p, row, token, sum, bits, 0, 2); \
			else rows4(p, row, token, sum, bits, 0, 1); \
		} \
	}
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)
ROWS(8)

typedef void (*rows_function)(const product *, const int64_t *, int, __m128 *, int);

static rows_function rows_of(int bits) {
	switch (bits) {
	case 2: return rows4_2;
	case 3: return rows4_3;
	case 4: return rows4_4;
	case 5: return rows4_5;
	case 6: return rows4_6;
	default: return rows4_8;
	}
}

// few is for few tokens: codes are decoded anew for every four.
SB_AVX512 static void few(const product *p, int first, int rows, float (*sums)[SB_ROWS]) {
	rows_function rows4 = rows_of(p->m->bits);
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

// unpack decodes a superblock of a row to bytes, and its scales and biases to
// float32.
SB_VECTOR void unpack(sb_scratch *s, const product *p, int64_t row, int r, int col, const int bits) {
	const sb_matrix *m = p->m;
	int cols = width(m, col), per = p->halves ? 32 : 64, c = 0;
	decoder d = decoder_of(bits);
	const uint8_t *src = m->data + row * p->row_bytes + (int64_t)col * bits / 8;
	uint8_t *dst = s->panel.codes[r];
	for (; c < cols / 64; c++) _mm512_storeu_si512(dst + c * 64, decode(load_codes(src + c * 8 * bits, bits, 0), bits, &d));
	if (cols % 64) _mm512_storeu_si512(dst + c * 64, decode(load_codes(src + c * 8 * bits, bits, 1), bits, &d));
	int64_t at = row * p->groups + col / m->group;
	_mm512_storeu_ps(s->scale[r], load_factors(m->scales + at, cols / per, m));
	_mm512_storeu_ps(s->bias[r], load_factors(m->biases + at, cols / per, m));
	if (p->halves) {
		int n = cols > 16 * per ? cols / per - 16 : 0;
		_mm512_storeu_ps(s->scale[r] + 16, load_factors(m->scales + at + 16, n, m));
		_mm512_storeu_ps(s->bias[r] + 16, load_factors(m->biases + at + 16, n, m));
	}
}

SB_AVX512 static void unpack_row(sb_scratch *s, const product *p, int64_t row, int r, int col) {
	switch (p->m->bits) {
	case 2: unpack(s, p, row, r, col, 2); break;
	case 3: unpack(s, p, row, r, col, 3); break;
	case 4: unpack(s, p, row, r, col, 4); break;
	case 5: unpack(s, p, row, r, col, 5); break;
	case 6: unpack(s, p, row, r, col, 6); break;
	default: unpack(s, p, row, r, col, 8);
	}
}

// panel4 multiplies 4 unpacked rows, in the same order as rows4 does.
SB_VECTOR void panel4(const sb_scratch *scratch, const product *p, int r, int col, int token, __m128 *sum, const int halves, const int n) {
	int cols = width(p->m, col);
	const int per = halves ? 32 : 64;
	decoder d = decoder_of(8);
	superblock b = {.chunks = cols / 64, .half = cols % 64 != 0};
	state s;
	SB_UNROLL
	for (int i = 0; i < 4; i++) b.code[i] = scratch->panel.codes[r + i];
	SB_UNROLL
	for (int t = 0; t < n; t++) {
		int64_t at = x_row(p, token + t);
		b.x[t] = p->x->q + at * p->x->q_stride + col;
		const float *sx = p->x->scale + at * p->x->s_stride + col / per, *sums = p->x->sum + at * p->x->s_stride + col / per;
		__m512 x = _mm512_loadu_ps(sx), y = _mm512_loadu_ps(sums);
		SB_UNROLL
		for (int i = 0; i < 4; i++) {
			_mm512_store_ps(s.factor[t][i], _mm512_mul_ps(_mm512_loadu_ps(scratch->scale[r + i]), x));
			s.acc[t][i] = _mm512_mul_ps(_mm512_loadu_ps(scratch->bias[r + i]), y);
		}
		if (halves && cols > 16 * per) {
			x = _mm512_loadu_ps(sx + 16), y = _mm512_loadu_ps(sums + 16);
			SB_UNROLL
			for (int i = 0; i < 4; i++) {
				_mm512_store_ps(s.factor[t][i] + 16, _mm512_mul_ps(_mm512_loadu_ps(scratch->scale[r + i] + 16), x));
				s.acc[t][i] = _mm512_fmadd_ps(_mm512_loadu_ps(scratch->bias[r + i] + 16), y, s.acc[t][i]);
			}
		}
	}
	multiply(&s, &b, &d, 8, halves, n, 0);
	SB_UNROLL
	for (int t = 0; t < n; t++) sum[t] = _mm_add_ps(sum[t], reduce4(s.acc[t][0], s.acc[t][1], s.acc[t][2], s.acc[t][3]));
}

SB_AVX512 static __attribute__((noinline)) void panel_rows(const sb_scratch *s, const product *p, int r, int col, int token, __m128 *sum, int n) {
	if (p->halves) {
		if (n == 4) panel4(s, p, r, col, token, sum, 1, 4);
		else if (n == 2) panel4(s, p, r, col, token, sum, 1, 2);
		else panel4(s, p, r, col, token, sum, 1, 1);
	} else {
		if (n == 4) panel4(s, p, r, col, token, sum, 0, 4);
		else if (n == 2) panel4(s, p, r, col, token, sum, 0, 2);
		else panel4(s, p, r, col, token, sum, 0, 1);
	}
}

// many decodes a superblock of 16 rows once for all tokens.
SB_AVX512 static void many(sb_scratch *s, const product *p, int first, int rows, float (*sums)[SB_ROWS]) {
	int tokens = p->task->tokens;
	for (int col = 0; col < p->m->cols; col += SB_INT8_COLS) {
		for (int r = 0; r < rows; r++) unpack_row(s, p, first + r, r, col);
		for (int t = 0, n; t < tokens; t += n) {
			n = tokens - t >= 4 ? 4 : tokens - t >= 2 ? 2 : 1;
			for (int r = 0; r < rows; r += 4) {
				__m128 sum[4];
				for (int i = 0; i < n; i++) sum[i] = _mm_loadu_ps(&sums[t + i][r]);
				panel_rows(s, p, r, col, t, sum, n);
				for (int i = 0; i < n; i++) _mm_storeu_ps(&sums[t + i][r], sum[i]);
			}
		}
	}
}

void sb_avx512_int8(sb_scratch *s, const sb_matrix *m, const sb_input *in, const sb_task *t, int first, int rows, float (*sums)[SB_ROWS]) {
	int halves = m->group == 32;
	product p = {m, &in->int8[halves], t, halves, (int64_t)m->cols * m->bits / 8, m->cols / m->group};
	if (t->tokens < 8) few(&p, first, rows, sums);
	else many(s, &p, first, rows, sums);
}

#endif
