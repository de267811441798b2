// Opening the shim, and its functions as C functions: Go calls no pointers.
#ifndef SB_MLX_LOAD_H
#define SB_MLX_LOAD_H

#include "shim/sbmlx.h"

// sb_mlx_load opens a shared library and returns the shim's table, or null
// with a text in the message.
const sbmlx_api *sb_mlx_load(const char *path, sbmlx_message *message);

static inline sbmlx_engine *sb_mlx_open(const sbmlx_api *a, sbmlx_message *m) { return a->open(m); }
static inline void sb_mlx_close(const sbmlx_api *a, sbmlx_engine *e) { a->close(e); }
static inline void sb_mlx_info(const sbmlx_api *a, sbmlx_engine *e, sbmlx_info *i) { a->info(e, i); }
static inline int sb_mlx_memory(const sbmlx_api *a, sbmlx_engine *e, sbmlx_memory *m, int32_t reset) { return a->memory(e, m, reset); }
static inline sbmlx_slab *sb_mlx_slab_new(const sbmlx_api *a, sbmlx_engine *e, int64_t n) { return a->slab_new(e, n); }
static inline void *sb_mlx_slab_bytes(const sbmlx_api *a, sbmlx_slab *s) { return a->slab_bytes(s); }
static inline void sb_mlx_slab_free(const sbmlx_api *a, sbmlx_slab *s) { a->slab_free(s); }
static inline int sb_mlx_matrix(const sbmlx_api *a, sbmlx_engine *e, sbmlx_slab *s, const sbmlx_matrix *m) { return a->matrix(e, s, m); }
static inline int sb_mlx_vector(const sbmlx_api *a, sbmlx_engine *e, sbmlx_slab *s, int64_t at, int32_t n) { return a->vector(e, s, at, n); }
static inline int sb_mlx_tensor(const sbmlx_api *a, sbmlx_engine *e, int32_t rows, int32_t cols) { return a->tensor(e, rows, cols); }
static inline int sb_mlx_kv(const sbmlx_api *a, sbmlx_engine *e, int32_t heads, int32_t n, int32_t dim, int32_t f16) { return a->kv(e, heads, n, dim, f16); }
static inline int sb_mlx_embed(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, const int32_t *ids, const sbmlx_linear *w) { return a->embed(e, y, ids, w); }
static inline int sb_mlx_rms_norm(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows x, int32_t w, float eps) { return a->rms_norm(e, y, x, w, eps); }
static inline int sb_mlx_linear(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows x, const sbmlx_linear *w) { return a->linear(e, y, x, w); }
static inline int sb_mlx_angles(const sbmlx_api *a, sbmlx_engine *e, const float *c, const float *s, int32_t rows, int32_t half) { return a->angles(e, c, s, rows, half); }
static inline int sb_mlx_rope(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows x) { return a->rope(e, x); }
static inline int sb_mlx_attention(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows q, sbmlx_rows k, sbmlx_rows v, int32_t kv, const sbmlx_attention *s) { return a->attention(e, y, q, k, v, kv, s); }
static inline int sb_mlx_swiglu(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows g, sbmlx_rows u) { return a->swiglu(e, y, g, u); }
static inline int sb_mlx_add(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows x) { return a->add(e, y, x); }
static inline int sb_mlx_take(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows x, int32_t from) { return a->take(e, y, x, from); }
static inline int sb_mlx_experts(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows x, const sbmlx_expert *c, int32_t n, const int32_t *rows) { return a->experts(e, y, x, c, n, rows); }
static inline int sb_mlx_combine(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, sbmlx_rows x, const float *w, int32_t k) { return a->combine(e, y, x, w, k); }
static inline int sb_mlx_put(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y, const float *v) { return a->load(e, y, v); }
static inline int sb_mlx_project(const sbmlx_api *a, sbmlx_engine *e, float *y, sbmlx_rows x, const sbmlx_linear *w) { return a->project(e, y, x, w); }
static inline int sb_mlx_read(const sbmlx_api *a, sbmlx_engine *e, float *y, sbmlx_rows x, int32_t row) { return a->read(e, y, x, row); }
static inline int sb_mlx_sync(const sbmlx_api *a, sbmlx_engine *e) { return a->sync(e); }
static inline const void *sb_mlx_matrix_address(const sbmlx_api *a, sbmlx_engine *e, int32_t id) { return a->matrix_address(e, id); }
static inline const void *sb_mlx_kv_address(const sbmlx_api *a, sbmlx_engine *e, int32_t id) { return a->kv_address(e, id); }
static inline int sb_mlx_fail(const sbmlx_api *a, sbmlx_engine *e, sbmlx_rows y) { return a->fail(e, y); }

#endif
