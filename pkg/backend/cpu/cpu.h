// The C half of the cpu backend: kernels, their thread pool and the structures
// that the Go half fills. Everything is checked before it comes here.
#ifndef SUBSTRATE_CPU_H
#define SUBSTRATE_CPU_H

#include <stdint.h>

#ifdef __clang__
// Clang fuses a*b+c by default, GCC does not in -std=c11: results must not
// depend on the compiler's mood.
#pragma STDC FP_CONTRACT OFF
#endif

#if defined(__x86_64__)
#define SB_FEATURES "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,f16c,fma"
#ifdef __clang__
#define SB_AVX512 __attribute__((target(SB_FEATURES), min_vector_width(512)))
#else
#define SB_AVX512 __attribute__((target(SB_FEATURES ",prefer-vector-width=512")))
#endif
#endif
#define SB_INLINE static inline __attribute__((always_inline))

enum {
	SB_PARTS = 3,       // backend.MaxParts
	SB_TOKENS = 256,    // rows of x that one call takes
	SB_ROWS = 16,       // rows of a matrix in one block of work
	SB_F32_COLS = 512,  // columns summed in lanes before they are added up,
	SB_INT8_COLS = 1024, // by kind of activations
	SB_SHARE = 4,       // heads that share one reading of a KV head
	SB_KEYS = 64,       // positions of one step of attention's running softmax
	SB_HEAD_DIM = 1024  // the largest head
};

// Weights.

typedef struct {
	const uint8_t *data;
	const uint16_t *scales, *biases; // [rows][cols/group]
	int32_t rows, cols;
	int16_t bits, group; // bits 16 and 32: dense
	int32_t f16;         // 16-bit floats are f16, else bf16
} sb_matrix;

typedef struct {
	const sb_matrix *part[SB_PARTS];
	const float *bias; // or NULL
	int32_t parts;
} sb_linear;

// Activations.

// Rows rounded to 8 bits by groups of 64 or 32 columns: x ~ scale * q.
// Behind the last column everything is zero up to the stride.
typedef struct {
	int8_t *q;     // [row][q_stride], a multiple of 64
	float *scale;  // [row][s_stride], a multiple of 16
	float *sum;    // [row][s_stride]: scale * sum of q
	int64_t q_stride, s_stride;
} sb_int8;

typedef struct {
	const float *x; // [row][stride]
	int64_t stride;
	int32_t rows, cols;
	int32_t need[2]; // by groups of 64, of 32
	sb_int8 int8[2];
	const int32_t *gather; // which rows of x are rounded; NULL: the first ones
} sb_input;

// One product y = w(x), or y = act(w(x), up(x)) if up has parts.
typedef struct {
	sb_linear w, up;
	float *y;
	int64_t y_stride;
	const int32_t *in, *rounded, *out; // rows of x, of its rounded form, of y; NULL: in order
	int32_t tokens;                    // at most SB_TOKENS
	int32_t first_block;
	float alpha, limit; // of the activation; limit 0: SwiGLU
} sb_task;

// The scratch of one thread.
typedef struct {
	float sums[2][SB_TOKENS][SB_ROWS];
	union {
		float f32[SB_ROWS][SB_F32_COLS];
		uint8_t codes[SB_ROWS][SB_INT8_COLS];
	} panel;
	float scale[SB_ROWS][SB_INT8_COLS / 32];
	float bias[SB_ROWS][SB_INT8_COLS / 32];
	float sum[SB_SHARE][SB_HEAD_DIM]; // attention: sums of values
} sb_scratch;

// Attention.

typedef struct {
	void *k, *v; // [kv_heads][context][head_dim]; one and the same if latent
	int32_t f16, context, kv_heads, head_dim;
	int32_t value_dim; // of a value: the first numbers at its place
} sb_kv;

typedef struct {
	float *y;
	const float *q;
	const sb_kv *kv;
	const float *sinks; // [heads], or NULL
	int32_t rows, heads, pos, window;
	float scale;
} sb_attention;

// The kernels of one code path.
typedef struct {
	const char *name;
	// product sets sums[t][r] to row first+r of w times the token's row of x.
	void (*product)(sb_scratch *, const sb_linear *w, const sb_input *, const sb_task *, int first, int rows, float (*sums)[SB_ROWS]);
	// round fills one row of in->int8[which].
	void (*round)(const sb_input *, int which, int row);
	void (*decode)(float *dst, const sb_matrix *, int row);
	// attend computes n <= SB_SHARE heads from `head` on, of one KV head.
	void (*attend)(sb_scratch *, const sb_attention *, int row, int head, int n);
	void (*to_f16)(uint16_t *dst, const float *src, int n);
	void (*rms_norm)(float *dst, const float *x, const float *w, int n, float eps);
	void (*rope)(float *x, int heads, int head_dim, const float *cos, const float *sin);
	void (*swiglu)(float *dst, const float *gate, const float *up, int64_t n);
	// clamped is backend.Activation with a limit.
	void (*clamped)(float *dst, const float *gate, const float *up, int64_t n, float alpha, float limit);
	void (*add)(float *dst, const float *x, int64_t n);
	void (*axpy)(float *dst, float a, const float *x, int64_t n);
} sb_kernels;

extern const sb_kernels sb_scalar;
// sb_find returns the kernels of a path, "" for the best one, or NULL if this
// machine has none of that name.
const sb_kernels *sb_find(const char *path);

// sb_gemm adds a product of matrices, c += a*b, as backend.GEMM says, in the
// calling thread.
void sb_gemm(const sb_kernels *, float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int m, int n, int k);

// The thread pool.

typedef struct sb_pool sb_pool;
typedef void (*sb_work)(void *arg, sb_scratch *, int lo, int hi);

// sb_pool_open starts threads-1 threads; the caller is the last. scratch has
// one entry per thread. NULL: no threads to be had.
sb_pool *sb_pool_open(int threads, sb_scratch *scratch);
void sb_pool_close(sb_pool *);
// sb_pool_bytes is what a pool holds beside scratch: stacks and itself.
int64_t sb_pool_bytes(int threads);
// sb_parallel calls work on ranges of at most grain items that cover [0, n).
void sb_parallel(sb_pool *, int n, int grain, sb_work, void *arg);

// Ops.

typedef struct {
	const sb_kernels *kernels;
	sb_pool *pool;
	int32_t threads;
	// Angles of the last RoPE, [rows][head_dim/2] each, and what made them.
	float *cos, *sin;
	float *freqs;
	int32_t angle_floats, angle_pos, angle_rows, angle_half;
} sb_context;

void sb_products(sb_context *, sb_input *, sb_task *, int n);
void sb_embed(sb_context *, float *dst, float *row, const sb_linear *, const int32_t *ids, int n);
void sb_rms_norm(sb_context *, float *dst, const float *x, const float *w, int n, int64_t chunks, float eps);
void sb_rope(sb_context *, float *x, int rows, int cols, int head_dim, int pos, const float *freqs);
void sb_attend(sb_context *, sb_attention *, const float *k, const float *v);
void sb_swiglu(sb_context *, float *dst, const float *gate, const float *up, int64_t n);
void sb_add(sb_context *, float *dst, const float *x, int64_t n);
void sb_combine(sb_context *, float *dst, const float *y, const float *weights, int rows, int cols, int k);

#endif
