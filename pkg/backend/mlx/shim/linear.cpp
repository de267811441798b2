// Products with weights.
#include <span>
#include <stdexcept>

#include "engine.h"

namespace sb {
namespace {

// Blocks are whole multiples of this many rows: what MLX's fastest kernels
// want.
constexpr int kBlockRows = 64;

Views planes(const Slab& slab, const sbmlx_matrix& s, int row, int rows) {
  auto half = s.f16 ? mx::float16 : mx::bfloat16;
  if (s.bits >= 16) {
    int64_t offset = s.data + int64_t(row) * s.cols * (s.bits / 8);
    return {slab.view(offset, {rows, s.cols}, s.bits == 32 ? mx::float32 : half)};
  }
  int words = s.cols / 32 * s.bits, groups = s.cols / s.group;
  int64_t scales = int64_t(row) * groups * 2;
  return {
      slab.view(s.data + int64_t(row) * words * 4, {rows, words}, mx::uint32),
      slab.view(s.scales + scales, {rows, groups}, half),
      slab.view(s.biases + scales, {rows, groups}, half),
  };
}

// converted is how many bytes a product makes of one row beside its codes.
int64_t converted(int bits, int group, int cols) {
  if (bits == 32) {
    return 0;
  }
  return bits == 16 ? int64_t(cols) * 4 : int64_t(cols) / group * 8;
}

mx::array float32(const mx::array& a) { return mx::astype(a, mx::float32); }

}  // namespace

const mx::array& Matrix::part(size_t index) const {
  if (views->empty()) {
    throw std::invalid_argument("the slab of the matrix was freed");
  }
  return (*views)[index];
}

void Engine::matrix(Slab& slab, const sbmlx_matrix& s) {
  Matrix m{s.rows, s.cols, s.bits, s.group, {}, nullptr};
  Views views = planes(slab, s, 0, s.rows);
  int64_t most = static_cast<int64_t>(limits_.block) / std::max<int64_t>(1, converted(s.bits, s.group, s.cols));
  int step = static_cast<int>(std::max<int64_t>(kBlockRows, most / kBlockRows * kBlockRows));
  if (step >= s.rows) {
    m.blocks.push_back({0, s.rows, 0});
  } else {
    for (int row = 0; row < s.rows; row += step) {
      int rows = std::min(step, s.rows - row);
      m.blocks.push_back({row, rows, views.size()});
      for (auto& view : planes(slab, s, row, rows)) {
        views.push_back(view);
      }
    }
  }
  m.views = slab.bind(std::move(views));
  matrices_.push_back(std::move(m));
}

void Engine::vector(Slab& slab, int64_t offset, int n) {
  vectors_.push_back(slab.bind({slab.view(offset, {n}, mx::float32)}));
}

mx::array Engine::vector(int id) const {
  const auto& views = *vectors_.at(id - 1);
  if (views.empty()) {
    throw std::invalid_argument("the slab of the vector was freed");
  }
  return views[0];
}

// product is x times a block's rows. Activations are float32, scales and dense
// weights may have 16 bits: MLX would convert them too, but in whole. They are
// converted in every product, not once, as the bytes of a slab change under a
// matrix, and as a copy would cost up to a quarter of the codes for good.
mx::array Engine::product(const mx::array& x, const Matrix& m, const Matrix::Block& block) {
  count(converted(m.bits, m.group, m.cols) * block.rows);
  if (!m.coded()) {
    return mx::matmul(x, mx::transpose(float32(m.part(block.views))));
  }
  return mx::quantized_matmul(x, m.part(block.views), float32(m.part(block.views + 1)),
                              float32(m.part(block.views + 2)), true, m.group, m.bits);
}

mx::array Engine::product(const mx::array& x, const Matrix& m) {
  if (m.blocks.size() == 1) {
    return product(x, m, m.blocks[0]);
  }
  std::vector<mx::array> outputs;
  for (const auto& block : m.blocks) {
    outputs.push_back(product(x, m, block));
    count(outputs.back().nbytes());
    settle(outputs);
  }
  return mx::concatenate(std::move(outputs), 1);
}

// apply is the sum of the products with a linear's parts, plus its bias.
mx::array Engine::apply(const mx::array& x, const sbmlx_linear& w) {
  auto y = product(x, at(w.part[0]));
  for (int i = 1; i < w.parts; i++) {
    y = mx::add(y, product(x, at(w.part[i])));
  }
  if (w.bias != 0) {
    y = mx::add(y, vector(w.bias));
  }
  return y;
}

void Engine::linear(sbmlx_rows dst, sbmlx_rows x, const sbmlx_linear& w) { put(dst, apply(get(x), w)); }

// rows_of decodes rows of a matrix: only they are read.
mx::array Engine::rows_of(const Matrix& m, const mx::array& ids) {
  auto pick = [&](size_t plane) { return mx::take(m.part(plane), ids, 0); };
  if (!m.coded()) {
    return float32(pick(0));
  }
  return mx::dequantize(pick(0), float32(pick(1)), float32(pick(2)), m.group, m.bits);
}

void Engine::embed(sbmlx_rows dst, const int32_t* ids, const sbmlx_linear& table) {
  mx::array which(ids, {dst.rows}, mx::int32);
  auto y = rows_of(at(table.part[0]), which);
  for (int i = 1; i < table.parts; i++) {
    y = mx::add(y, rows_of(at(table.part[i]), which));
  }
  put(dst, y);
}

// experts computes each call on its rows, then puts the outputs in place.
void Engine::experts(sbmlx_rows out, sbmlx_rows x, const sbmlx_expert* calls, int n, const int32_t* rows) {
  auto input = get(x);
  std::vector<mx::array> outputs;
  std::vector<int32_t> places;  // the rows of out, in the order of outputs
  for (const auto& call : std::span(calls, n)) {
    if (call.rows == 0) {
      continue;
    }
    auto in = call.rows == 1 ? mx::slice(input, {rows[0], 0}, {rows[0] + 1, input.shape(1)})
                             : mx::take(input, mx::array(rows, {call.rows}, mx::int32), 0);
    auto inner = sb::swiglu(apply(in, call.gate), apply(in, call.up));
    outputs.push_back(apply(inner, call.down));
    places.insert(places.end(), rows + call.rows, rows + 2 * call.rows);
    rows += 2 * call.rows;
    count(3 * inner.nbytes() + outputs.back().nbytes());
    settle(outputs);
  }
  if (outputs.empty()) {
    return;
  }
  int total = static_cast<int>(places.size());
  auto y = mx::concatenate(std::move(outputs), 0);
  if (total == out.rows) {
    // All of out: no earlier value lives on.
    std::vector<int32_t> from(total);
    for (int i = 0; i < total; i++) {
      from[places[i]] = i;
    }
    put(out, mx::take(y, mx::array(from.data(), {total}, mx::int32), 0));
    return;
  }
  auto& r = registers_.at(out.id - 1);
  int held = r.value ? std::min(r.value->shape(0), out.rows) : 0;
  auto base = held > 0 ? get({out.id, held}) : mx::zeros({out.rows, r.cols});
  if (held > 0 && held < out.rows) {
    base = mx::concatenate({base, mx::zeros({out.rows - held, r.cols})}, 0);
  }
  mx::array where(places.data(), {total}, mx::int32);
  put(out, mx::scatter(base, where, mx::reshape(y, {total, 1, r.cols}), 0));
}

}  // namespace sb
