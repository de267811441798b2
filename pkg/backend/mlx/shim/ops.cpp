// Ops without weight matrices.
#include <stdexcept>

#include "engine.h"

namespace sb {
namespace {

// visible is which of n keys, from position first on, each of rows queries
// from position pos on sees: the window positions up to its own.
mx::array visible(int pos, int rows, int first, int n, int window) {
  auto query = mx::expand_dims(mx::arange(pos, pos + rows), 1);
  auto key = mx::expand_dims(mx::arange(first, first + n), 0);
  return mx::logical_and(mx::less_equal(key, query), mx::greater(key, mx::subtract(query, mx::array(window))));
}

// heads turns [rows, heads*dim] into [1, heads, rows, dim].
mx::array heads(const mx::array& x, int n, int dim) {
  return mx::transpose(mx::reshape(x, {1, x.shape(0), n, dim}), {0, 2, 1, 3});
}

// Sight is what a step's queries see: keys and values from position oldest on.
struct Sight {
  mx::array queries, keys, values;  // [1, heads, rows or positions, dim]
  int oldest;
};

// attend is attention of rows of the queries, from row on.
mx::array attend(const Sight& sight, int row, int rows, const sbmlx_attention& s) {
  int pos = s.pos + row, end = pos + rows;
  int first = s.window > 0 ? std::max(0, pos + 1 - s.window) : 0;
  auto seen = [&](const mx::array& a) {
    return mx::slice(a, {0, 0, first - sight.oldest, 0}, {1, s.kv_heads, end - sight.oldest, s.head_dim});
  };
  auto queries = mx::slice(sight.queries, {0, 0, row, 0}, {1, s.heads, row + rows, s.head_dim});
  std::string mode = rows == 1 ? "" : "causal";
  std::optional<mx::array> mask;
  if (rows > 1 && s.window > 0 && end - first > s.window) {
    mode = "array";
    mask = visible(pos, rows, first, end - first, s.window);
  }
  return mx::fast::scaled_dot_product_attention(queries, seen(sight.keys), seen(sight.values), s.scale, mode, mask);
}

}  // namespace

void Engine::rms_norm(sbmlx_rows dst, sbmlx_rows x, int w, float eps) {
  auto value = get(x);
  auto weight = vector(w);
  int rows = value.shape(0), cols = value.shape(1), chunk = weight.shape(0);
  if (chunk == cols) {
    put(dst, mx::fast::rms_norm(value, weight, eps));
    return;
  }
  auto chunks = mx::reshape(value, {rows, cols / chunk, chunk});
  put(dst, mx::reshape(mx::fast::rms_norm(chunks, weight, eps), {rows, cols}));
}

void Engine::angles(const float* cos, const float* sin, int rows, int half) {
  mx::Shape shape{rows, 1, 1, half};
  cos_ = mx::array(cos, shape);
  sin_ = mx::array(sin, shape);
}

// rope turns the two halves of every head by the angles. MLX's own rope takes
// periods and divides by them, which at large positions is another angle than
// the models were trained with.
void Engine::rope(sbmlx_rows x) {
  if (!cos_ || cos_->shape(0) != x.rows) {
    throw std::invalid_argument("no angles for " + std::to_string(x.rows) + " rows");
  }
  auto value = get(x);
  int rows = value.shape(0), cols = value.shape(1), half = cos_->shape(3);
  int n = cols / (2 * half);
  auto pairs = mx::reshape(value, {rows, n, 2, half});
  auto a = mx::slice(pairs, {0, 0, 0, 0}, {rows, n, 1, half});
  auto b = mx::slice(pairs, {0, 0, 1, 0}, {rows, n, 2, half});
  auto first = mx::subtract(mx::multiply(a, *cos_), mx::multiply(b, *sin_));
  auto second = mx::add(mx::multiply(b, *cos_), mx::multiply(a, *sin_));
  put(x, mx::reshape(mx::concatenate({first, second}, 2), {rows, cols}));
}

void Engine::attention(sbmlx_rows dst, sbmlx_rows q, sbmlx_rows k, sbmlx_rows v, int kv, const sbmlx_attention& s) {
  auto& cache = caches_.at(kv - 1);
  int rows = q.rows, end = s.pos + rows;
  auto append = [&](mx::array& to, sbmlx_rows x) {
    auto update = heads(get(x), s.kv_heads, s.head_dim);
    // The only other reference to the old value goes with it, so that MLX
    // writes in place.
    to = mx::slice_update(to, update, mx::Shape{0, 0, s.pos, 0}, mx::Shape{1, s.kv_heads, end, s.head_dim});
  };
  append(cache.keys, k);
  append(cache.values, v);
  cache.fresh = true;

  // Positions from oldest to end are seen by some row.
  int oldest = s.window > 0 ? std::max(0, s.pos + 1 - s.window) : 0;
  auto seen = [&](const mx::array& a) {
    return mx::astype(mx::slice(a, {0, 0, oldest, 0}, {1, s.kv_heads, end, s.head_dim}), mx::float32);
  };
  Sight sight{heads(get(q), s.heads, s.head_dim), seen(cache.keys), seen(cache.values), oldest};
  if (cache.keys.dtype() != mx::float32) {
    count(2 * sight.keys.nbytes());
  }
  // Where MLX has no fused kernel, it holds all scores, before and after the
  // softmax: take few queries at a time.
  int64_t row_bytes = int64_t(s.heads) * (end - oldest) * 8;
  int step = static_cast<int>(std::clamp<int64_t>(limits_.block / row_bytes, 1, rows));
  std::vector<mx::array> outputs;
  for (int row = 0; row < rows; row += step) {
    outputs.push_back(attend(sight, row, std::min(step, rows - row), s));
    count(row_bytes * step);
    settle(outputs);
  }
  auto y = mx::concatenate(std::move(outputs), 2);
  put(dst, mx::reshape(mx::transpose(y, {0, 2, 1, 3}), {rows, s.heads * s.head_dim}));
}

// 1 + exp(-gate) is written 2 + expm1(-gate): MLX's own exp on the CPU, and its
// sigmoid, which is 1 - sigmoid(-x) below zero, lose digits.
mx::array swiglu(const mx::array& gate, const mx::array& up) {
  auto two = mx::array(2.0f);
  return mx::multiply(mx::divide(gate, mx::add(two, mx::expm1(mx::negative(gate)))), up);
}

void Engine::swiglu(sbmlx_rows dst, sbmlx_rows gate, sbmlx_rows up) { put(dst, sb::swiglu(get(gate), get(up))); }

void Engine::add(sbmlx_rows dst, sbmlx_rows x) { put(dst, mx::add(get(dst), get(x))); }

void Engine::take(sbmlx_rows dst, sbmlx_rows x, int from) {
  auto value = get(x);
  put(dst, mx::slice(value, {from, 0}, {from + dst.rows, value.shape(1)}));
}

void Engine::combine(sbmlx_rows dst, sbmlx_rows y, const float* weights, int k) {
  auto value = get(y);
  int cols = value.shape(1);
  auto weighted = mx::multiply(mx::reshape(value, {dst.rows, k, cols}), mx::array(weights, {dst.rows, k, 1}));
  put(dst, mx::add(get(dst), mx::sum(weighted, 1)));
}

}  // namespace sb
