// The C face of the MLX shim: what the Go half of the backend calls. The shim
// is a shared library of its own, compiled against the MLX that it will load,
// so that a program without MLX still starts; the Go half opens it on demand
// and takes every function from one table.
//
// Functions return a code, and where it is not SBMLX_OK a text in the engine's
// message. No exception crosses this line. All calls on an engine come from one
// thread.
#ifndef SBMLX_H
#define SBMLX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised with every change of this file.
#define SBMLX_ABI 2

// The oldest MLX whose C++ API the shim is written for, as
// MLX_VERSION_NUMERIC counts.
#define SBMLX_MLX_FLOOR 32004

enum {
  SBMLX_OK,
  SBMLX_WRONG,   // the call is: a shape, a handle
  SBMLX_FAILED,  // the device did: out of memory, an error of evaluation
};

enum { SBMLX_PARTS = 3 };

typedef struct sbmlx_engine sbmlx_engine;
typedef struct sbmlx_slab sbmlx_slab;

typedef struct {
  char text[1024];
} sbmlx_message;

// Ids count from 1 in the order in which handles were made; 0 is none.

// The first rows of a register.
typedef struct {
  int32_t id, rows;
} sbmlx_rows;

typedef struct {
  int32_t part[SBMLX_PARTS];  // matrices that add up
  int32_t parts;
  int32_t bias;  // a vector
} sbmlx_linear;

typedef struct {
  int64_t data, scales, biases;  // bytes from the slab's start
  int32_t rows, cols;
  int32_t bits;   // 2, 3, 4, 5, 6, 8: codes; 16 and 32: dense
  int32_t group;  // 0 where dense
  int32_t f16;    // 16-bit values are f16, not bf16
} sbmlx_matrix;

typedef struct {
  int32_t heads, kv_heads, head_dim;
  int32_t pos;     // of the first row
  int32_t window;  // 0: all
  float scale;
} sbmlx_attention;

typedef struct {
  sbmlx_linear gate, up, down;
  int32_t rows;  // how many it serves
} sbmlx_expert;

typedef struct {
  char mlx[32];     // the version of MLX
  int32_t gpu;      // computes on the GPU
  int64_t scratch;  // bytes: about the most that ops hold beside registers, caches and slabs
} sbmlx_info;

// What MLX's allocator holds, in bytes: slabs are part of active.
typedef struct {
  int64_t active, cache, peak;
} sbmlx_memory;

typedef struct {
  int32_t abi;  // SBMLX_ABI of the shim
  int32_t mlx;  // the MLX_VERSION_NUMERIC it was compiled with

  // open checks the MLX at hand and returns an engine, or null with a text in
  // the message, which the engine goes on using.
  sbmlx_engine *(*open)(sbmlx_message *);
  void (*close)(sbmlx_engine *);
  void (*info)(sbmlx_engine *, sbmlx_info *);
  // memory reads the counters, and begins a new peak if asked to.
  int (*memory)(sbmlx_engine *, sbmlx_memory *, int32_t reset_peak);

  // A slab does not belong to an engine: it lives until it is freed.
  sbmlx_slab *(*slab_new)(sbmlx_engine *, int64_t bytes);
  void *(*slab_bytes)(sbmlx_slab *);
  void (*slab_free)(sbmlx_slab *);

  int (*matrix)(sbmlx_engine *, sbmlx_slab *, const sbmlx_matrix *);
  int (*vector)(sbmlx_engine *, sbmlx_slab *, int64_t offset, int32_t n);
  int (*tensor)(sbmlx_engine *, int32_t rows, int32_t cols);
  int (*kv)(sbmlx_engine *, int32_t heads, int32_t context, int32_t head_dim, int32_t f16);

  int (*embed)(sbmlx_engine *, sbmlx_rows dst, const int32_t *ids, const sbmlx_linear *table);
  int (*rms_norm)(sbmlx_engine *, sbmlx_rows dst, sbmlx_rows x, int32_t w, float eps);
  int (*linear)(sbmlx_engine *, sbmlx_rows dst, sbmlx_rows x, const sbmlx_linear *);
  // angles sets what rope turns by: cosines and sines, [rows][half].
  int (*angles)(sbmlx_engine *, const float *cos, const float *sin, int32_t rows, int32_t half);
  int (*rope)(sbmlx_engine *, sbmlx_rows x);
  int (*attention)(sbmlx_engine *, sbmlx_rows dst, sbmlx_rows q, sbmlx_rows k, sbmlx_rows v, int32_t kv,
                   const sbmlx_attention *);
  int (*swiglu)(sbmlx_engine *, sbmlx_rows dst, sbmlx_rows gate, sbmlx_rows up);
  int (*add)(sbmlx_engine *, sbmlx_rows dst, sbmlx_rows x);
  int (*take)(sbmlx_engine *, sbmlx_rows dst, sbmlx_rows x, int32_t from);
  // experts: rows holds, call by call, the rows of x it reads, then the rows
  // of out it writes.
  int (*experts)(sbmlx_engine *, sbmlx_rows out, sbmlx_rows x, const sbmlx_expert *, int32_t calls,
                 const int32_t *rows);
  int (*combine)(sbmlx_engine *, sbmlx_rows dst, sbmlx_rows y, const float *weights, int32_t k);
  int (*load)(sbmlx_engine *, sbmlx_rows dst, const float *values);

  // These wait for all ops so far.
  int (*project)(sbmlx_engine *, float *dst, sbmlx_rows x, const sbmlx_linear *);  // x through w, to the host
  int (*read)(sbmlx_engine *, float *dst, sbmlx_rows x, int32_t row);
  int (*sync)(sbmlx_engine *);

  // For tests: where kernels read a matrix's codes and a cache's keys, and an
  // op that fails when it is evaluated.
  const void *(*matrix_address)(sbmlx_engine *, int32_t matrix);
  const void *(*kv_address)(sbmlx_engine *, int32_t kv);
  int (*fail)(sbmlx_engine *, sbmlx_rows dst);
} sbmlx_api;

// The one exported name.
#define SBMLX_SYMBOL "sbmlx_get_api"
__attribute__((visibility("default"))) const sbmlx_api *sbmlx_get_api(void);

#ifdef __cplusplus
}
#endif

#endif
