// Ops as work for the pool: what is split how. Splits never change a result,
// because every output is computed by one thread in an order of its own.
#include "cpu.h"

#include <math.h>
#include <string.h>

// Jobs below this many elementary operations are not worth waking a thread.
enum { WORTHWHILE = 1 << 15 };

// grain is how many of n items one thread takes at a time: a few turns each,
// so that a slow or busy processor does not hold up the others.
static int grain(const sb_context *c, int n, int64_t cost) {
	if (n * cost < WORTHWHILE) return n;
	int g = n / (c->threads * 6);
	int64_t least = WORTHWHILE / 4 / (cost > 0 ? cost : 1) + 1;
	if (g < least) g = least < n ? (int)least : n;
	return g < 1 ? 1 : g;
}

// Products.

typedef struct {
	sb_context *c;
	sb_input *in;
	sb_task *tasks;
	int n;
} products;

static void round_rows(void *v, sb_scratch *s, int lo, int hi) {
	products *p = v;
	(void)s;
	for (int i = lo; i < hi; i++)
		for (int which = 0; which < 2; which++)
			if (p->in->need[which]) p->c->kernels->round(p->in, which, i);
}

static int blocks(const sb_task *t) { return (t->w.part[0]->rows + SB_ROWS - 1) / SB_ROWS; }

// finish writes a block's sums to y, with bias and activation.
static void finish(sb_context *c, sb_scratch *s, const sb_task *t, int first, int rows) {
	float one[SB_ROWS];
	for (int i = 0; i < t->tokens; i++) {
		const float *sum = s->sums[0][i];
		float *y = t->y + (t->out ? t->out[i] : i) * t->y_stride + first;
		if (t->w.bias) {
			for (int r = 0; r < rows; r++) one[r] = sum[r] + t->w.bias[first + r];
			sum = one;
		}
		if (t->up.parts) {
			float *up = s->sums[1][i];
			if (t->up.bias)
				for (int r = 0; r < rows; r++) up[r] += t->up.bias[first + r];
			if (t->limit > 0)
				c->kernels->clamped(y, sum, up, rows, t->alpha, t->limit);
			else
				c->kernels->swiglu(y, sum, up, rows);
		} else {
			memcpy(y, sum, rows * sizeof *y);
		}
	}
}

static void run_blocks(void *v, sb_scratch *s, int lo, int hi) {
	products *p = v;
	const sb_task *t = p->tasks;
	for (int block = lo; block < hi; block++) {
		while (block >= t->first_block + blocks(t)) t++;
		int first = (block - t->first_block) * SB_ROWS;
		int rows = t->w.part[0]->rows - first;
		if (rows > SB_ROWS) rows = SB_ROWS;
		p->c->kernels->product(s, &t->w, p->in, t, first, rows, s->sums[0]);
		if (t->up.parts) p->c->kernels->product(s, &t->up, p->in, t, first, rows, s->sums[1]);
		finish(p->c, s, t, first, rows);
	}
}

void sb_products(sb_context *c, sb_input *in, sb_task *tasks, int n) {
	products p = {c, in, tasks, n};
	if (in->need[0] || in->need[1])
		sb_parallel(c->pool, in->rows, grain(c, in->rows, in->cols), round_rows, &p);
	int total = 0;
	int64_t cost = 0;
	for (int i = 0; i < n; i++) {
		tasks[i].first_block = total;
		total += blocks(&tasks[i]);
		cost += (int64_t)tasks[i].tokens * tasks[i].w.part[0]->rows * tasks[i].w.part[0]->cols / 8;
	}
	if (total > 0) sb_parallel(c->pool, total, grain(c, total, cost / total + 1), run_blocks, &p);
}

void sb_embed(sb_context *c, float *dst, float *row, const sb_linear *w, const int32_t *ids, int n) {
	int cols = w->part[0]->cols;
	for (int i = 0; i < n; i++, dst += cols)
		for (int part = 0; part < w->parts; part++) {
			c->kernels->decode(part ? row : dst, w->part[part], ids[i]);
			if (part) c->kernels->add(dst, row, cols);
		}
}

// Attention.

typedef struct {
	sb_context *c;
	const sb_attention *a;
} attention;

// shares is how many times a KV head is read for the heads that share it.
static int shares(const sb_attention *a) {
	return (a->heads / a->kv->kv_heads + SB_SHARE - 1) / SB_SHARE;
}

static void run_heads(void *v, sb_scratch *s, int lo, int hi) {
	attention *p = v;
	const sb_attention *a = p->a;
	int group = a->heads / a->kv->kv_heads, parts = shares(a), per_row = a->kv->kv_heads * parts;
	for (int i = lo; i < hi; i++) {
		int kv_head = i % per_row / parts, first = i % parts * SB_SHARE;
		int n = group - first < SB_SHARE ? group - first : SB_SHARE;
		p->c->kernels->attend(s, a, i / per_row, kv_head * group + first, n);
	}
}

// store appends the rows of a step to keys or values.
static void store(sb_context *c, const sb_attention *a, void *to, const float *x) {
	const sb_kv *kv = a->kv;
	int d = kv->head_dim;
	for (int r = 0; r < a->rows; r++)
		for (int h = 0; h < kv->kv_heads; h++, x += d) {
			int64_t at = ((int64_t)h * kv->context + a->pos + r) * d;
			if (kv->f16)
				c->kernels->to_f16((uint16_t *)to + at, x, d);
			else
				memcpy((float *)to + at, x, d * sizeof *x);
		}
}

void sb_attend(sb_context *c, sb_attention *a, const float *k, const float *v) {
	const sb_kv *kv = a->kv;
	store(c, a, kv->k, k);
	if (v) store(c, a, kv->v, v);
	attention p = {c, a};
	int seen = a->pos + a->rows;
	if (a->window && seen > a->window) seen = a->window;
	int n = a->rows * kv->kv_heads * shares(a);
	sb_parallel(c->pool, n, grain(c, n, (int64_t)seen * kv->head_dim * a->heads / kv->kv_heads / shares(a) / 4), run_heads, &p);
}

// Elementwise ops. Rows of a register lie behind each other, so that most see
// one long array, cut into pieces.

enum { PIECE = 4096 };

typedef struct {
	sb_context *c;
	float *dst;
	const float *x, *w;
	int64_t n;
	int width, k;
	float eps;
} elements;

static int pieces(int64_t n) { return (int)((n + PIECE - 1) / PIECE); }

static int64_t piece_end(const elements *e, int hi) {
	int64_t end = (int64_t)hi * PIECE;
	return end < e->n ? end : e->n;
}

static void run_norm(void *v, sb_scratch *s, int lo, int hi) {
	elements *e = v;
	(void)s;
	for (int64_t i = lo; i < hi; i++)
		e->c->kernels->rms_norm(e->dst + i * e->width, e->x + i * e->width, e->w, e->width, e->eps);
}

void sb_rms_norm(sb_context *c, float *dst, const float *x, const float *w, int n, int64_t chunks, float eps) {
	elements e = {.c = c, .dst = dst, .x = x, .w = w, .width = n, .eps = eps};
	sb_parallel(c->pool, (int)chunks, grain(c, (int)chunks, n), run_norm, &e);
}

static void run_swiglu(void *v, sb_scratch *s, int lo, int hi) {
	elements *e = v;
	(void)s;
	int64_t at = (int64_t)lo * PIECE;
	e->c->kernels->swiglu(e->dst + at, e->x + at, e->w + at, piece_end(e, hi) - at);
}

void sb_swiglu(sb_context *c, float *dst, const float *gate, const float *up, int64_t n) {
	elements e = {.c = c, .dst = dst, .x = gate, .w = up, .n = n};
	sb_parallel(c->pool, pieces(n), grain(c, pieces(n), 4 * PIECE), run_swiglu, &e);
}

static void run_add(void *v, sb_scratch *s, int lo, int hi) {
	elements *e = v;
	(void)s;
	int64_t at = (int64_t)lo * PIECE;
	e->c->kernels->add(e->dst + at, e->x + at, piece_end(e, hi) - at);
}

void sb_add(sb_context *c, float *dst, const float *x, int64_t n) {
	elements e = {.c = c, .dst = dst, .x = x, .n = n};
	sb_parallel(c->pool, pieces(n), grain(c, pieces(n), PIECE / 2), run_add, &e);
}

static void run_combine(void *v, sb_scratch *s, int lo, int hi) {
	elements *e = v;
	(void)s;
	for (int64_t row = lo; row < hi; row++)
		for (int64_t j = row * e->k; j < (row + 1) * e->k; j++)
			e->c->kernels->axpy(e->dst + row * e->width, e->w[j], e->x + j * e->width, e->width);
}

void sb_combine(sb_context *c, float *dst, const float *y, const float *weights, int rows, int cols, int k) {
	elements e = {.c = c, .dst = dst, .x = y, .w = weights, .width = cols, .k = k};
	sb_parallel(c->pool, rows, grain(c, rows, (int64_t)cols * k / 2), run_combine, &e);
}

// RoPE. Every head of every layer turns by the same angles, so those of the
// last call are kept.

typedef struct {
	sb_context *c;
	float *x;
	int first, cols, head_dim;
} rotation;

static void run_rope(void *v, sb_scratch *s, int lo, int hi) {
	rotation *r = v;
	(void)s;
	for (int i = lo; i < hi; i++) {
		int64_t at = (int64_t)i * (r->head_dim / 2);
		r->c->kernels->rope(r->x + (int64_t)(r->first + i) * r->cols, r->cols / r->head_dim, r->head_dim, r->c->cos + at, r->c->sin + at);
	}
}

// angles fills the table for rows from pos on, unless it is there already. The
// angle is a float32 product, as in the models' training: at large positions
// its rounding is part of the model.
static void angles(sb_context *c, int rows, int half, int pos, const float *freqs) {
	if (c->angle_half == half && c->angle_pos == pos && c->angle_rows >= rows && memcmp(c->freqs, freqs, half * sizeof *freqs) == 0) return;
	memcpy(c->freqs, freqs, half * sizeof *freqs);
	c->angle_half = half, c->angle_pos = pos, c->angle_rows = rows;
	for (int r = 0; r < rows; r++)
		for (int i = 0; i < half; i++) {
			double angle = (float)(pos + r) * freqs[i];
			c->cos[r * half + i] = (float)cos(angle);
			c->sin[r * half + i] = (float)sin(angle);
		}
}

void sb_rope(sb_context *c, float *x, int rows, int cols, int head_dim, int pos, const float *freqs) {
	int half = head_dim / 2, most = c->angle_floats / half;
	for (int first = 0; first < rows; first += most) {
		int n = rows - first < most ? rows - first : most;
		angles(c, n, half, pos + first, freqs);
		rotation r = {c, x, first, cols, head_dim};
		sb_parallel(c->pool, n, grain(c, n, cols), run_rope, &r);
	}
}
