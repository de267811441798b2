// The code path for AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and later).
#include "avx512.h"

#ifdef SB_AVX512

OPS(SB_AVX512, avx512)

SB_AVX512 static void avx512_to_f16(uint16_t *dst, const float *src, int n) {
	for (int i = 0; i < n; i += 16) {
		__mmask16 mask = tail(n - i);
		_mm256_mask_storeu_epi16(dst + i, mask, _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	}
}

// Same results as scalar_round.
SB_AVX512 static void avx512_round(const sb_input *in, int which, int row) {
	const sb_int8 *to = &in->int8[which];
	int group = which ? 32 : 64, g = 0;
	const float *x = in->x + (in->gather ? in->gather[row] : row) * in->stride;
	int8_t *q = to->q + row * to->q_stride;
	float *scale = to->scale + row * to->s_stride, *sum = to->sum + row * to->s_stride;
	for (int at = 0; at < to->q_stride; at += group, g++) {
		__m512 v[4];
		// As integers, magnitudes order like floats, with infinity and NaN on top.
		__m512i highest = _mm512_setzero_si512();
		for (int i = 0; i < group / 16; i++) {
			int left = in->cols - at - 16 * i;
			v[i] = _mm512_maskz_loadu_ps(tail(left > 0 ? left : 0), x + at + 16 * i);
			highest = _mm512_max_epu32(highest, _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
		}
		uint32_t bits = _mm512_reduce_max_epu32(highest);
		float top = as_float(bits), inv = 127.0f / top;
		scale[g] = top / 127.0f;
		if (bits >= 0x7f800000) scale[g] = NAN;
		if (bits >= 0x7f800000 || !(top > 1e-30f)) inv = 0;
		if (top <= 1e-30f) scale[g] = 0;
		__m512i total = _mm512_setzero_si512();
		for (int i = 0; i < group / 16; i++) {
			__m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], _mm512_set1_ps(inv)));
			total = _mm512_add_epi32(total, n);
			_mm_storeu_si128((__m128i *)(q + at + 16 * i), _mm512_cvtsepi32_epi8(n));
		}
		sum[g] = scale[g] * (float)_mm512_reduce_add_epi32(total);
	}
	for (; g < to->s_stride; g++) scale[g] = sum[g] = 0;
}

static void avx512_product(sb_scratch *s, const sb_linear *w, const sb_input *in, const sb_task *t, int first, int rows, float (*sums)[SB_ROWS]) {
	memset(sums, 0, t->tokens * sizeof *sums);
	for (int part = 0; part < w->parts; part++) {
		const sb_matrix *m = w->part[part];
		int rounded = m->bits < 16 && in->need[m->group == 32];
		(rounded ? sb_avx512_int8 : sb_avx512_f32)(s, m, in, t, first, rows, sums);
	}
}

const sb_kernels sb_avx512vnni = {
	.name = "avx512vnni",
	.product = avx512_product,
	.round = avx512_round,
	.decode = sb_avx512_decode,
	.attend = sb_avx512_attend,
	.to_f16 = avx512_to_f16,
	.rms_norm = avx512_rms_norm,
	.rope = avx512_rope,
	.swiglu = avx512_swiglu,
	.clamped = avx512_clamped,
	.add = avx512_add,
	.axpy = avx512_axpy,
};

#endif
