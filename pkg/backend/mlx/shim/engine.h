// The state of one backend and its ops.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory.h"
#include "sbmlx.h"

namespace sb {

// Limits bound the memory of ops, in bytes.
struct Limits {
  // What ops may build before it is computed. MLX allocates a result when it
  // is queued, not when its turn comes.
  size_t built;
  // What an op may make at once: of a matrix beside its codes, of scores.
  size_t block;
  // What MLX keeps of freed buffers. Its own limit is nearly all memory on
  // Metal.
  size_t cache;

  // Two portions are under way at most, each with a block too much.
  size_t total() const { return 2 * (built + block) + cache; }
};

// limits are those of the device. On a GPU, portions are commands that the
// processor prepares while the last ones run: few and large ones keep it busy.
Limits limits();

// Matrix is a weight matrix in a slab. Its rows are split into blocks so that
// what a product makes of one block beside the codes (scales in float32, or
// dense weights in float32) stays small; most matrices are one block.
struct Matrix {
  struct Block {
    int row, rows;
    size_t views;  // where the block's views begin
  };
  int rows, cols, bits, group;
  std::vector<Block> blocks;
  // Codes, scales, biases of the whole, then of each block; only the first
  // of three if dense.
  std::shared_ptr<Views> views;

  bool coded() const { return bits < 16; }
  // part is the view at an index, or throws if the slab was freed.
  const mx::array& part(size_t index) const;
};

// Engine is one backend: what its handles stand for, and the graph that its
// ops build. An op makes nodes and stores the last in its destination
// register; what it made on the way dies with it. Nodes are computed when the
// host asks for values, or when a lot of them have gathered.
class Engine {
 public:
  explicit Engine(sbmlx_message* message);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // enter makes the calling thread build and evaluate on the engine's stream.
  void enter();
  // report keeps the text of a failed call.
  void report(const char* text);

  void matrix(Slab& slab, const sbmlx_matrix& spec);
  void vector(Slab& slab, int64_t offset, int n);
  void tensor(int rows, int cols);
  void kv(int heads, int context, int head_dim, bool f16);

  void embed(sbmlx_rows dst, const int32_t* ids, const sbmlx_linear& table);
  void rms_norm(sbmlx_rows dst, sbmlx_rows x, int w, float eps);
  void linear(sbmlx_rows dst, sbmlx_rows x, const sbmlx_linear& w);
  void angles(const float* cos, const float* sin, int rows, int half);
  void rope(sbmlx_rows x);
  void attention(sbmlx_rows dst, sbmlx_rows q, sbmlx_rows k, sbmlx_rows v, int kv, const sbmlx_attention& spec);
  void swiglu(sbmlx_rows dst, sbmlx_rows gate, sbmlx_rows up);
  void add(sbmlx_rows dst, sbmlx_rows x);
  void take(sbmlx_rows dst, sbmlx_rows x, int from);
  void experts(sbmlx_rows out, sbmlx_rows x, const sbmlx_expert* calls, int n, const int32_t* rows);
  void combine(sbmlx_rows dst, sbmlx_rows y, const float* weights, int k);
  void load(sbmlx_rows dst, const float* values);
  void fail(sbmlx_rows dst);

  void project(float* dst, sbmlx_rows x, const sbmlx_linear& w);
  void read(float* dst, sbmlx_rows x, int row);
  // sync computes everything that is still to be computed.
  void sync() { finish({}); }

  const void* matrix_address(int id) const;
  const void* kv_address(int id);

 private:
  struct Register {
    int rows, cols;
    std::optional<mx::array> value;  // [rows of the last op, cols]
    bool fresh = false;              // not known to be computed
    bool lost = false;               // in a failed evaluation
  };
  struct Cache {
    mx::array keys, values;  // [1, heads, context, head_dim]
    bool fresh = false;
  };

  const Matrix& at(int id) const { return matrices_.at(id - 1); }
  mx::array get(sbmlx_rows x) const;
  void put(sbmlx_rows dst, mx::array value);

  mx::array product(const mx::array& x, const Matrix& m);
  mx::array product(const mx::array& x, const Matrix& m, const Matrix::Block& block);
  mx::array apply(const mx::array& x, const sbmlx_linear& w);
  mx::array rows_of(const Matrix& m, const mx::array& ids);
  mx::array vector(int id) const;

  void count(size_t bytes) { built_bytes_ += bytes; }
  void settle(const std::vector<mx::array>& partial);
  void finish(std::vector<mx::array> wanted);
  std::vector<mx::array> fresh() const;
  void forget();

  sbmlx_message* message_;
  Limits limits_;
  mx::Stream stream_;
  std::vector<Register> registers_;
  std::vector<Matrix> matrices_;
  std::vector<std::shared_ptr<Views>> vectors_;
  std::vector<Cache> caches_;
  std::optional<mx::array> cos_, sin_;  // [rows, 1, 1, half]
  size_t built_bytes_ = 0;              // by ops since they were last settled
  std::optional<mx::array> ticket_;     // a result of the portion under way
};

// check_mlx throws unless the MLX that was loaded is the one that the shim
// was compiled with, and does what the engine relies on.
void check_mlx();

// swiglu is silu(gate) * up.
mx::array swiglu(const mx::array& gate, const mx::array& up);

// failing returns a node that throws when it is evaluated.
mx::array failing(mx::Shape shape);

}  // namespace sb
