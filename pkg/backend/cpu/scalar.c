// The code path for any machine: plain C, in loops that compilers vectorise.
#include "ops.h"

OPS(, scalar)

// 16-bit floats.

static float from_bf16(uint16_t h) { return as_float((uint32_t)h << 16); }

static float from_f16(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, b = h & 0x7fff;
	if (b >= 0x7c00) return as_float(sign | 0x7f800000 | (b & 0x3ff) << 13);
	if (b >= 0x400) return as_float(sign | ((b << 13) + 0x38000000));
	return as_float(sign | as_bits((float)b * 0x1p-24f)); // subnormal
}

static uint16_t to_f16(float x) {
	uint32_t b = as_bits(x);
	uint16_t sign = b >> 16 & 0x8000;
	b &= 0x7fffffff;
	if (b > 0x7f800000) return sign | 0x7e00;
	if (b >= 0x47800000) return sign | 0x7c00;
	if (b >= 0x38800000) {
		b -= 0x38000000;
		return sign | (uint16_t)((b + 0xfff + (b >> 13 & 1)) >> 13);
	}
	// Subnormal: adding 0.5 rounds to units of 2^-24.
	return sign | (uint16_t)(as_bits(as_float(b) + 0.5f) - 0x3f000000);
}

static float from_16(const sb_matrix *m, uint16_t h) { return m->f16 ? from_f16(h) : from_bf16(h); }

static void scalar_to_f16(uint16_t *dst, const float *src, int n) {
	for (int i = 0; i < n; i++) dst[i] = to_f16(src[i]);
}

// Codes.

// unpack unpacks n codes, a multiple of 8. Eight codes of any width are `bits`
// bytes.
SB_INLINE void unpack(uint8_t *dst, const uint8_t *src, int n, const int bits) {
	if (bits == 4) {
		for (int i = 0; i < n / 2; i++) {
			dst[2 * i] = src[i] & 15;
			dst[2 * i + 1] = src[i] >> 4;
		}
		return;
	}
	// Halves, quarters, eighths of a word move to their places.
	const uint64_t half = (1ull << 4 * bits) - 1;
	const uint64_t quarter = ((1ull << 2 * bits) - 1) * 0x100000001;
	const uint64_t eighth = ((1ull << bits) - 1) * 0x1000100010001;
	for (int i = 0; i < n; i += 8, src += bits) {
		uint64_t w = 0;
		for (int j = 0; j < bits; j++) w |= (uint64_t)src[j] << 8 * j;
		w = (w & half) | (w >> 4 * bits) << 32;
		w = (w & quarter) | (w >> 2 * bits & quarter) << 16;
		w = (w & eighth) | (w >> bits & eighth) << 8;
		memcpy(dst + i, &w, 8);
	}
}

// codes unpacks n codes of a row from column `from` on, both multiples of 32.
static void codes(uint8_t *dst, const sb_matrix *m, int64_t row, int from, int n) {
	const uint8_t *src = m->data + (row * m->cols + from) * m->bits / 8;
	switch (m->bits) {
	case 2: unpack(dst, src, n, 2); break;
	case 3: unpack(dst, src, n, 3); break;
	case 4: unpack(dst, src, n, 4); break;
	case 5: unpack(dst, src, n, 5); break;
	case 6: unpack(dst, src, n, 6); break;
	default: memcpy(dst, src, n);
	}
}

// values decodes n columns of a row from column `from` on.
static void values(float *dst, uint8_t *buf, const sb_matrix *m, int64_t row, int from, int n) {
	int64_t at = row * m->cols + from;
	if (m->bits == 32) {
		memcpy(dst, (const float *)m->data + at, n * sizeof *dst);
		return;
	}
	if (m->bits == 16) {
		const uint16_t *src = (const uint16_t *)m->data + at;
		if (m->f16)
			for (int i = 0; i < n; i++) dst[i] = from_f16(src[i]);
		else
			for (int i = 0; i < n; i++) dst[i] = from_bf16(src[i]);
		return;
	}
	codes(buf, m, row, from, n);
	for (int i = 0; i < n;) {
		int64_t g = row * (m->cols / m->group) + (from + i) / m->group;
		float scale = from_16(m, m->scales[g]), bias = from_16(m, m->biases[g]);
		int end = i + m->group - (from + i) % m->group;
		if (end > n) end = n;
		for (; i < end; i++) dst[i] = scale * (float)buf[i] + bias;
	}
}

static void scalar_decode(float *dst, const sb_matrix *m, int row) {
	uint8_t buf[SB_F32_COLS];
	for (int at = 0; at < m->cols; at += SB_F32_COLS) {
		int n = m->cols - at < SB_F32_COLS ? m->cols - at : SB_F32_COLS;
		values(dst + at, buf, m, row, at, n);
	}
}

// Activations.

static void scalar_round(const sb_input *in, int which, int row) {
	const sb_int8 *to = &in->int8[which];
	int group = which ? 32 : 64;
	const float *x = in->x + (in->gather ? in->gather[row] : row) * in->stride;
	int8_t *q = to->q + row * to->q_stride;
	float *scale = to->scale + row * to->s_stride, *sum = to->sum + row * to->s_stride;
	int g = 0;
	for (int at = 0; at < in->cols; at += group, g++) {
		int n = in->cols - at < group ? in->cols - at : group;
		// As integers, magnitudes order like floats, with infinity and NaN on top.
		uint32_t highest = 0;
		for (int i = 0; i < n; i++) {
			uint32_t b = as_bits(x[at + i]) & 0x7fffffff;
			highest = b > highest ? b : highest;
		}
		float top = as_float(highest);
		memset(q + at, 0, group);
		scale[g] = sum[g] = 0;
		if (highest >= 0x7f800000) {
			scale[g] = sum[g] = NAN;
		} else if (top > 1e-30f) {
			float inv = 127.0f / top;
			int total = 0;
			for (int i = 0; i < n; i++) {
				int v = (int)rintf(x[at + i] * inv);
				q[at + i] = (int8_t)v;
				total += v;
			}
			scale[g] = top / 127.0f;
			sum[g] = scale[g] * (float)total;
		}
	}
	memset(q + (int64_t)g * group, 0, to->q_stride - (int64_t)g * group);
	for (; g < to->s_stride; g++) scale[g] = sum[g] = 0;
}

// Products.

static void product_f32(sb_scratch *s, const sb_matrix *m, const sb_input *in, const sb_task *t, int row, int r, float (*sums)[SB_ROWS]) {
	float *w = s->panel.f32[0];
	uint8_t *buf = (uint8_t *)s->panel.f32[1];
	for (int at = 0; at < m->cols; at += SB_F32_COLS) {
		int n = m->cols - at < SB_F32_COLS ? m->cols - at : SB_F32_COLS;
		values(w, buf, m, row, at, n);
		for (int i = 0; i < t->tokens; i++) {
			const float *x = in->x + (t->in ? t->in[i] : i) * in->stride + at;
			float lane[16] = {0};
			int k = 0;
			for (; k + 16 <= n; k += 16)
				for (int j = 0; j < 16; j++) lane[j] += w[k + j] * x[k + j];
			for (int j = 0; k + j < n; j++) lane[j] += w[k + j] * x[k + j];
			sums[i][r] += sum16(lane);
		}
	}
}

static void product_int8(sb_scratch *s, const sb_matrix *m, const sb_input *in, const sb_task *t, int row, int r, float (*sums)[SB_ROWS]) {
	uint8_t *q = s->panel.codes[0];
	int which = m->group == 32, chunk = which ? 32 : 64;
	const sb_int8 *from = &in->int8[which];
	for (int at = 0; at < m->cols; at += SB_INT8_COLS) {
		int n = m->cols - at < SB_INT8_COLS ? m->cols - at : SB_INT8_COLS;
		codes(q, m, row, at, n);
		for (int g = 0; g < n / chunk; g++) {
			int64_t i = (int64_t)row * (m->cols / m->group) + (at + g * chunk) / m->group;
			s->scale[0][g] = from_16(m, m->scales[i]);
			s->bias[0][g] = from_16(m, m->biases[i]);
		}
		for (int i = 0; i < t->tokens; i++) {
			int64_t x_row = t->rounded ? t->rounded[i] : i;
			const int8_t *x = from->q + x_row * from->q_stride + at;
			const float *scale = from->scale + x_row * from->s_stride + at / chunk;
			const float *sum = from->sum + x_row * from->s_stride + at / chunk;
			float y = 0;
			for (int g = 0; g < n / chunk; g++) {
				int dot = 0;
				for (int k = 0; k < 32; k++) dot += q[g * chunk + k] * x[g * chunk + k];
				if (chunk == 64)
					for (int k = 32; k < 64; k++) dot += q[g * chunk + k] * x[g * chunk + k];
				y += s->scale[0][g] * scale[g] * (float)dot + s->bias[0][g] * sum[g];
			}
			sums[i][r] += y;
		}
	}
}

static void scalar_product(sb_scratch *s, const sb_linear *w, const sb_input *in, const sb_task *t, int first, int rows, float (*sums)[SB_ROWS]) {
	memset(sums, 0, t->tokens * sizeof *sums);
	for (int part = 0; part < w->parts; part++) {
		const sb_matrix *m = w->part[part];
		int rounded = m->bits < 16 && in->need[m->group == 32];
		for (int r = 0; r < rows; r++)
			(rounded ? product_int8 : product_f32)(s, m, in, t, first + r, r, sums);
	}
}

// Attention, with a running maximum over blocks of positions. Blocks start at
// multiples of their size whatever the query, so a query's result does not
// depend on the step it came in.

// vector returns the d values at index i of a cache, decoded to buf if need be.
static const float *vector(float *buf, const sb_kv *kv, const void *p, int64_t i) {
	int d = kv->head_dim;
	if (!kv->f16) return (const float *)p + i * d;
	const uint16_t *h = (const uint16_t *)p + i * d;
	for (int j = 0; j < d; j++) buf[j] = from_f16(h[j]);
	return buf;
}

static float dot(const float *a, const float *b, int n) {
	float lane[16] = {0};
	int i = 0;
	for (; i + 16 <= n; i += 16)
		for (int j = 0; j < 16; j++) lane[j] += a[i + j] * b[i + j];
	for (int j = 0; i + j < n; j++) lane[j] += a[i + j] * b[i + j];
	return sum16(lane);
}

static void attend_one(sb_scratch *s, const sb_attention *a, int row, int head) {
	const sb_kv *kv = a->kv;
	int d = kv->head_dim;
	int64_t base = (int64_t)(head / (a->heads / kv->kv_heads)) * kv->context;
	int64_t at = (int64_t)row * a->heads + head;
	const float *q = a->q + at * d;
	int values = kv->value_dim;
	int end = a->pos + row + 1, first = a->window && end > a->window ? end - a->window : 0;
	float *sum = s->sum[0], *buf = s->panel.f32[0], highest = -INFINITY, total = 0;
	if (a->sinks) highest = a->sinks[head], total = 1;
	memset(sum, 0, values * sizeof *sum);
	for (int block = first / SB_KEYS * SB_KEYS; block < end; block += SB_KEYS) {
		int lo = block < first ? first : block, hi = block + SB_KEYS < end ? block + SB_KEYS : end;
		float p[SB_KEYS], top = highest;
		for (int i = 0; i < SB_KEYS; i++) {
			p[i] = -INFINITY;
			if (block + i < lo || block + i >= hi) continue;
			p[i] = a->scale * dot(q, vector(buf, kv, kv->k, base + block + i), d);
			top = p[i] > top ? p[i] : top;
		}
		float shrink = sb_exp(highest - top);
		highest = top;
		for (int i = 0; i < SB_KEYS; i++) p[i] = sb_exp(p[i] - top);
		float lane[16] = {0};
		for (int i = 0; i < SB_KEYS; i += 16)
			for (int j = 0; j < 16; j++) lane[j] += p[i + j];
		total = total * shrink + sum16(lane);
		for (int j = 0; j < values; j++) sum[j] *= shrink;
		for (int i = lo; i < hi; i++) {
			const float *v = vector(buf, kv, kv->v, base + i);
			for (int j = 0; j < values; j++) sum[j] += p[i - block] * v[j];
		}
	}
	for (int j = 0; j < values; j++) a->y[at * values + j] = sum[j] / total;
}

static void scalar_attend(sb_scratch *s, const sb_attention *a, int row, int head, int n) {
	for (int i = 0; i < n; i++) attend_one(s, a, row, head + i);
}

const sb_kernels sb_scalar = {
	.name = "scalar",
	.product = scalar_product,
	.round = scalar_round,
	.decode = scalar_decode,
	.attend = scalar_attend,
	.to_f16 = scalar_to_f16,
	.rms_norm = scalar_rms_norm,
	.rope = scalar_rope,
	.swiglu = scalar_swiglu,
	.clamped = scalar_clamped,
	.add = scalar_add,
	.axpy = scalar_axpy,
};
