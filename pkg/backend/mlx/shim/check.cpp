// What must hold before an engine relies on the MLX at hand.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "engine.h"
#include "mlx/primitives.h"

namespace sb {
namespace {

// Failing is a primitive whose evaluation throws.
class Failing : public mx::Primitive {
 public:
  explicit Failing(mx::Stream stream) : mx::Primitive(stream) {}
  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&) override { fail(); }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override { fail(); }
  const char* name() const override { return "Failing"; }

 private:
  static void fail() { throw std::runtime_error("this op fails when it is evaluated"); }
};

void require(bool ok, const char* what) {
  if (!ok) {
    throw std::runtime_error(std::string("self-test failed: ") + what);
  }
}

// check_version: MLX's C++ interface changes with patch releases, so the shim
// works with the version that it was compiled with, and no other.
void check_version() {
  int major = 0, minor = 0, patch = 0;
  std::sscanf(mx::version(), "%d.%d.%d", &major, &minor, &patch);
  if (100000 * major + 1000 * minor + patch != MLX_VERSION_NUMERIC) {
    throw std::runtime_error("libsbmlx was compiled for MLX " + std::to_string(MLX_VERSION_MAJOR) + "." +
                             std::to_string(MLX_VERSION_MINOR) + "." + std::to_string(MLX_VERSION_PATCH) +
                             ", and MLX " + mx::version() + " was loaded");
  }
}

// The matrices of the self-test: 4-bit codes, one group a row.
constexpr int kRows = 8, kCols = 64, kMatrices = 3, kStride = 1024;

// code is the code of a matrix at a row, the same in every column.
int code(int matrix, int row) { return (3 * matrix + row) % 16; }

// check_views: kernels read a slab through views, also such with gaps between
// matrices, without a copy.
void check_views() {
  Slab slab(kMatrices * kStride);
  constexpr int words = kCols / 8;
  for (int m = 0; m < kMatrices; m++) {
    for (int r = 0; r < kRows; r++) {
      std::memset(slab.base() + m * kStride + r * words * 4, code(m, r) * 0x11, words * 4);
    }
  }
  auto codes = slab.strided(0, {kMatrices, kRows, words}, {kStride / 4, words, 1}, mx::uint32, false);
  auto x = mx::ones({1, 1, kCols});
  auto scales = mx::full({kMatrices, kRows, 1}, 0.5f), biases = mx::full({kMatrices, kRows, 1}, -1.0f);
  const int order[] = {2, 0};
  auto y = mx::gather_qmm(x, codes, scales, biases, std::nullopt, mx::array(order, {2}, mx::int32), true, kCols, 4);
  auto second = slab.view(kStride, {kRows, words}, mx::uint32);
  auto z = mx::quantized_matmul(mx::ones({1, kCols}), second, mx::full({kRows, 1}, 0.5f), mx::full({kRows, 1}, -1.0f),
                                true, kCols, 4);
  mx::eval(y, z);
  require(second.data<uint8_t>() == slab.base() + kStride, "a view of a slab is elsewhere than the slab");
  auto right = [](float got, int matrix, int row) {
    return std::abs(got - kCols * (0.5f * code(matrix, row) - 1.0f)) < 1e-3f;
  };
  for (int r = 0; r < kRows; r++) {
    require(right(y.data<float>()[r], 2, r) && right(y.data<float>()[kRows + r], 0, r), "gather_qmm over a slab");
    require(right(z.data<float>()[r], 1, r), "quantized_matmul over a slab");
  }
}

// check_errors: errors of graph building and of evaluation arrive here, and
// the next evaluation works.
void check_errors() {
  bool caught = false;
  try {
    mx::matmul(mx::ones({2, 3}), mx::ones({2, 3}));
  } catch (const std::exception&) {
    caught = true;
  }
  require(caught, "a wrong shape is no error");
  caught = false;
  try {
    mx::eval(mx::add(failing({2}), mx::ones({2})));
  } catch (const std::exception&) {
    caught = true;
  }
  require(caught, "a failing evaluation is no error");
  auto three = mx::add(mx::full({2}, 1.0f), mx::full({2}, 2.0f));
  mx::eval(three);
  require(three.data<float>()[1] == 3.0f, "an evaluation after a failed one");
}

}  // namespace

mx::array failing(mx::Shape shape) {
  auto stream = mx::default_stream(mx::default_device());
  return mx::array(std::move(shape), mx::float32, std::make_shared<Failing>(stream), {});
}

void check_mlx() {
  check_version();
  check_views();
  check_errors();
}

}  // namespace sb
