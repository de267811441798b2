// Elementwise kernels in plain C, compiled once per code path: the compiler
// vectorises them for the instructions of the function they are inlined into.
// Sums run in 16 lanes, so that the order, and with it the result, is the same
// for every vector width.
#include "cpu.h"

#include <math.h>
#include <string.h>

SB_INLINE float as_float(uint32_t bits) {
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

SB_INLINE uint32_t as_bits(float f) {
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

// sb_exp is e^x to about 1 ulp, without branches; results that would be denormal,
// which are slow to compute with, are 0. Range reduction by ln 2 in two parts
// and the coefficients are those of Cephes' expf (Moshier).
SB_INLINE float sb_exp(float x) {
	float keep = x < -87.0f ? 0.0f : 1.0f; // NaN passes here and below
	x = x < -87.0f ? -87.0f : x;
	x = x > 89.0f ? 89.0f : x;
	float n = x * 1.44269504f;
	// Adding 1.5*2^23 leaves the nearest integer in the low bits.
	n = (n + 12582912.0f) - 12582912.0f;
	float r = x - n * 0.693359375f;
	r = r - n * -2.12194440e-4f;
	float p = 1.9875691500e-4f;
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	// 2^n in two factors, each with a normal exponent.
	int whole = x == x ? (int)n : 0, half = whole >> 1;
	return keep * p * as_float((uint32_t)(half + 127) << 23) * as_float((uint32_t)(whole - half + 127) << 23);
}

SB_INLINE float sum16(const float *lane) {
	float a[8], b[4];
	for (int i = 0; i < 8; i++) a[i] = lane[i] + lane[i + 8];
	for (int i = 0; i < 4; i++) b[i] = a[i] + a[i + 4];
	return (b[0] + b[2]) + (b[1] + b[3]);
}

SB_INLINE void rms_norm_body(float *dst, const float *x, const float *w, int n, float eps) {
	float lane[16] = {0};
	int i = 0;
	for (; i + 16 <= n; i += 16)
		for (int j = 0; j < 16; j++) lane[j] += x[i + j] * x[i + j];
	for (int j = 0; i + j < n; j++) lane[j] += x[i + j] * x[i + j];
	float inv = 1.0f / sqrtf(sum16(lane) / (float)n + eps);
	for (i = 0; i < n; i++) dst[i] = x[i] * inv * w[i];
}

SB_INLINE void rope_body(float *x, int heads, int head_dim, const float *cos, const float *sin) {
	int half = head_dim / 2;
	for (int h = 0; h < heads; h++, x += head_dim) {
		float *restrict a = x, *restrict b = x + half;
		for (int i = 0; i < half; i++) {
			float p = a[i], q = b[i];
			a[i] = p * cos[i] - q * sin[i];
			b[i] = q * cos[i] + p * sin[i];
		}
	}
}

SB_INLINE void swiglu_body(float *dst, const float *gate, const float *up, int64_t n) {
	for (int64_t i = 0; i < n; i++) dst[i] = gate[i] / (1.0f + sb_exp(-gate[i])) * up[i];
}

SB_INLINE void clamped_body(float *dst, const float *gate, const float *up, int64_t n, float alpha, float limit) {
	for (int64_t i = 0; i < n; i++) {
		float g = gate[i] > limit ? limit : gate[i], u = up[i] > limit ? limit : up[i];
		u = u < -limit ? -limit : u;
		dst[i] = g / (1.0f + sb_exp(-alpha * g)) * (u + 1.0f);
	}
}

SB_INLINE void add_body(float *dst, const float *x, int64_t n) {
	for (int64_t i = 0; i < n; i++) dst[i] += x[i];
}

SB_INLINE void axpy_body(float *dst, float a, const float *x, int64_t n) {
	for (int64_t i = 0; i < n; i++) dst[i] += a * x[i];
}

// OPS defines the kernels of one code path under a prefix.
#define OPS(attribute, prefix) \
	attribute static void prefix##_rms_norm(float *dst, const float *x, const float *w, int n, float eps) { rms_norm_body(dst, x, w, n, eps); } \
	attribute static void prefix##_rope(float *x, int heads, int head_dim, const float *cos, const float *sin) { rope_body(x, heads, head_dim, cos, sin); } \
	attribute static void prefix##_swiglu(float *dst, const float *gate, const float *up, int64_t n) { swiglu_body(dst, gate, up, n); } \
	attribute static void prefix##_clamped(float *dst, const float *gate, const float *up, int64_t n, float alpha, float limit) { clamped_body(dst, gate, up, n, alpha, limit); } \
	attribute static void prefix##_add(float *dst, const float *x, int64_t n) { add_body(dst, x, n); } \
	attribute static void prefix##_axpy(float *dst, float a, const float *x, int64_t n) { axpy_body(dst, a, x, n); }
