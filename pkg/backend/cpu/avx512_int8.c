// Products of codes with activations rounded to 8 bits.
//
// 64 codes of any width are 8*bits bytes, eight codes `bits` bytes: one byte
// permutation gives every quadword its eight codes, a multishift gives every
// byte its code, and vpdpbusd multiplies them with x, adding fours. What is
// left per 64 codes is a conversion and a fused multiply-add with scale*sx.
#include "avx512.h"

#ifdef SB_AVX512

// One superblock of a row: 16 chunks of 64 codes.
enum { CHUNKS = SB_INT8_COLS / 64 };

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

// A superblock as the inner loops see it. Scales are per chunk, or per half
// chunk where the group is 32.
typedef struct {
	const uint8_t *code[4];
	const float (*scale)[SB_INT8_COLS / 32], (*bias)[SB_INT8_COLS / 32];
	int chunks, half; // whole chunks, and whether half a chunk follows
} superblock;

typedef struct {
	const int8_t *q;
	const float *scale, *sum;
} rounded_row;

// tile computes a superblock of 4 rows for n tokens. It adds to sum[token].
SB_VECTOR void tile(const superblock *b, const rounded_row *x, __m128 *sum, const int bits, const int halves, const int n) {
	decoder d = decoder_of(bits);
	__m512 acc[4][4];
	_Alignas(64) float factor[4][4][SB_INT8_COLS / 32];
	for (int t = 0; t < n; t++)
		for (int r = 0; r < 4; r++) {
			__m512 sx = _mm512_loadu_ps(x[t].scale), sums = _mm512_loadu_ps(x[t].sum);
			_mm512_store_ps(factor[t][r], _mm512_mul_ps(sx, _mm512_loadu_ps(b->scale[r])));
			acc[t][r] = _mm512_mul_ps(sums, _mm512_loadu_ps(b->bias[r]));
			if (halves && b->chunks + b->half > 8) {
				sx = _mm512_loadu_ps(x[t].scale + 16), sums = _mm512_loadu_ps(x[t].sum + 16);
				_mm512_store_ps(factor[t][r] + 16, _mm512_mul_ps(sx, _mm512_loadu_ps(b->scale[r] + 16)));
				acc[t][r] = _mm512_fmadd_ps(sums, _mm512_loadu_ps(b->bias[r] + 16), acc[t][r]);
			}
		}
	const int steps = b->chunks + (halves ? b->half : 0);
	for (int c = 0; c < steps; c++) {
		__m512i w[4];
		for (int r = 0; r < 4; r++) {
			const uint8_t *p = b->code[r] + (int64_t)c * 8 * bits;
			w[r] = decode(halves && c == b->chunks ? load_codes(p, bits, 1) : load_codes(p, bits, 0), bits, &d);
		}
		for (int t = 0; t < n; t++) {
			__m512i q = _mm512_loadu_si512(x[t].q + c * 64);
			for (int r = 0; r < 4; r++) {
				__m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), w[r], q));
				__m512 f = _mm512_set1_ps(factor[t][r][halves ? 2 * c : c]);
				if (halves) f = _mm512_mask_broadcastss_ps(f, 0xff00, _mm_load_ss(&factor[t][r][2 * c + 1]));
				acc[t][r] = _mm512_fmadd_ps(dot, f, acc[t][r]);
			}
		}
	}
	for (int t = 0; t < n; t++) sum[t] = _mm_add_ps(sum[t], reduce4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
}

#define TILES(bits) \
	SB_AVX512 static __attribute__((noinline)) void tile_##bits(const superblock *b, const rounded_row *x, __m128 *sum, int halves, int n) { \
		if (halves) { \
			if (n == 4) tile(b, x, sum, bits, 1, 4); \
			else if (n == 2) tile(b, x, sum, bits, 1, 2); \
			else tile(b, x, sum, bits, 1, 1); \
		} else { \
			if (n == 4) tile(b, x, sum, bits, 0, 4); \
			else if (n == 2) tile(b, x, sum, bits, 0, 2); \
			else tile(b, x, sum, bits, 0, 1); \
		} \
	}
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
TILES(8)

typedef void (*tile_function)(const superblock *, const rounded_row *, __m128 *, int, int);

static tile_function tile_of(int bits) {
	switch (bits) {
	case 2: return tile_2;
	case 3: return tile_3;
	case 4: return tile_4;
	case 5: return tile_5;
	case 6: return tile_6;
	default: return tile_8;
	}
}

// factors decodes the scales or biases of a superblock of a row to one per
// chunk, or half chunk for groups of 32; behind the last there are zeros.
SB_VECTOR void factors(float *dst, const uint16_t *src, const sb_matrix *m, int cols) {
	int n = cols / m->group;
	if (m->group == 128) {
		n += cols % m->group != 0;
		const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
		_mm512_storeu_ps(dst, _mm512_permutexvar_ps(twice, load_16(src, tail(n), m->f16)));
		return;
	}
	_mm512_storeu_ps(dst, load_16(src, tail(n), m->f16));
	if (m->group == 32) _mm512_storeu_ps(dst + 16, load_16(src + 16, tail(n > 16 ? n - 16 : 0), m->f16));
}

typedef struct {
	const sb_matrix *m;
	const sb_int8 *x;
	const sb_task *task;
	int halves;
} product;

static const uint8_t *code_at(const sb_matrix *m, int64_t row, int col) {
	return m->data + (row * m->cols + col) * m->bits / 8;
}

static rounded_row row_at(const product *p, int token, int col) {
	int64_t row = p->task->rounded ? p->task->rounded[token] : token;
	int64_t at = row * p->x->s_stride + col / (p->halves ? 32 : 64);
	return (rounded_row){p->x->q + row * p->x->q_stride + col, p->x->scale + at, p->x->sum + at};
}

SB_AVX512 static void prepare(sb_scratch *s, const sb_matrix *m, int64_t row, int r, int col, int cols) {
	int64_t at = row * (m->cols / m->group) + col / m->group;
	factors(s->scale[r], m->scales + at, m, cols);
	factors(s->bias[r], m->biases + at, m, cols);
}

static void shape(superblock *b, sb_scratch *s, int r, int cols) {
	b->scale = &s->scale[r], b->bias = &s->bias[r];
	b->chunks = cols / 64, b->half = cols % 64 != 0;
}

// few decodes codes on their way into the product. Rows go in fours, each read
// from its start to its end.
SB_AVX512 static void few(sb_scratch *s, const product *p, int first, int rows, float (*sums)[SB_ROWS]) {
	const sb_matrix *m = p->m;
	tile_function tile = tile_of(m->bits);
	int tokens = p->task->tokens;
	for (int r = 0; r < rows; r += 4)
		for (int t = 0, n; t < tokens; t += n) {
			n = tokens - t >= 4 ? 4 : tokens - t >= 2 ? 2 : 1;
			__m128 sum[4];
			for (int i = 0; i < n; i++) sum[i] = _mm_loadu_ps(&sums[t + i][r]);
			for (int col = 0; col < m->cols; col += SB_INT8_COLS) {
				int cols = m->cols - col < SB_INT8_COLS ? m->cols - col : SB_INT8_COLS;
				superblock b;
				shape(&b, s, 0, cols);
				for (int i = 0; i < 4; i++) {
					// Behind the last row, compute it again.
					int row = first + (r + i < rows ? r + i : rows - 1);
					b.code[i] = code_at(m, row, col);
					prepare(s, m, row, i, col, cols);
				}
				rounded_row x[4];
				for (int i = 0; i < n; i++) x[i] = row_at(p, t + i, col);
				tile(&b, x, sum, p->halves, n);
			}
			for (int i = 0; i < n; i++) _mm_storeu_ps(&sums[t + i][r], sum[i]);
		}
}

// unpack decodes a superblock of a row to bytes.
SB_AVX512 static void unpack(uint8_t *dst, const uint8_t *src, int bits, int cols) {
	decoder d = decoder_of(bits);
	int c = 0;
	for (; c < cols / 64; c++) {
		__m512i v = _mm512_maskz_loadu_epi8(~0ull >> (64 - 8 * bits), src + c * 8 * bits);
		_mm512_storeu_si512(dst + c * 64, decode(v, bits, &d));
	}
	if (cols % 64) _mm512_storeu_si512(dst + c * 64, decode(load_codes(src + c * 8 * bits, bits, 1), bits, &d));
}

// many decodes a superblock of 16 rows once for all tokens.
SB_AVX512 static void many(sb_scratch *s, const product *p, int first, int rows, float (*sums)[SB_ROWS]) {
	const sb_matrix *m = p->m;
	int tokens = p->task->tokens;
	for (int col = 0; col < m->cols; col += SB_INT8_COLS) {
		int cols = m->cols - col < SB_INT8_COLS ? m->cols - col : SB_INT8_COLS;
		for (int r = 0; r < rows; r++) {
			unpack(s->panel.codes[r], code_at(m, first + r, col), m->bits, cols);
			prepare(s, m, first + r, r, col, cols);
		}
		for (int t = 0, n; t < tokens; t += n) {
			n = tokens - t >= 4 ? 4 : tokens - t >= 2 ? 2 : 1;
			rounded_row x[4];
			for (int i = 0; i < n; i++) x[i] = row_at(p, t + i, col);
			for (int r = 0; r < rows; r += 4) {
				superblock b;
				shape(&b, s, r, cols);
				for (int i = 0; i < 4; i++) b.code[i] = s->panel.codes[r + i];
				__m128 sum[4];
				for (int i = 0; i < n; i++) sum[i] = _mm_loadu_ps(&sums[t + i][r]);
				tile_8(&b, x, sum, p->halves, n);
				for (int i = 0; i < n; i++) _mm_storeu_ps(&sums[t + i][r], sum[i]);
			}
		}
	}
}

void sb_avx512_int8(sb_scratch *s, const sb_matrix *m, const sb_input *in, const sb_task *t, int first, int rows, float (*sums)[SB_ROWS]) {
	int halves = m->group == 32;
	product p = {m, &in->int8[halves], t, halves};
	(t->tokens < 8 ? few : many)(s, &p, first, rows, sums);
}

#endif
