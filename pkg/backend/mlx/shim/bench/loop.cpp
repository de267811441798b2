// Decode loops written straight on MLX, for the model of the backend's
// benchmark. "loop" makes the calls that the backend makes: what they cost
// without Go and without the shim. "graph" never reads a route on the host: the
// device picks experts and gathers their products from banks of all experts,
// with scales in float32. `make bench-mlx` compares. Prints "name wall-ns
// cpu-ns" of one token.
//
//     loop loop|graph [TOKENS]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "mlx/mlx.h"

namespace mx = mlx::core;

namespace {

// The model of bench_test.go.
constexpr int kLayers = 8, kHidden = 512, kHeads = 8, kKVHeads = 4, kDim = 64, kExperts = 16, kTopK = 4, kInner = 256,
              kVocab = 4096, kContext = 512, kGroup = 64, kBits = 4;

struct Matrix {
  mx::array codes, scales, biases;
};

mx::array settled(mx::array a) {
  mx::eval(a);
  return a;
}

Matrix matrix(int rows, int cols) {
  return {settled(mx::full({rows, cols * kBits / 32}, 0x37373737u)),
          settled(mx::full({rows, cols / kGroup}, 0.001f, mx::bfloat16)),
          settled(mx::full({rows, cols / kGroup}, -0.0075f, mx::bfloat16))};
}

struct Expert {
  Matrix gate = matrix(kInner, kHidden), up = matrix(kInner, kHidden), down = matrix(kHidden, kInner);
};

struct Layer {
  mx::array attn_norm = settled(mx::ones({kHidden})), moe_norm = settled(mx::ones({kHidden}));
  Matrix q = matrix(kHeads * kDim, kHidden), k = matrix(kKVHeads * kDim, kHidden), v = matrix(kKVHeads * kDim, kHidden),
         o = matrix(kHidden, kHeads* kDim);
  mx::array router = settled(mx::full({kExperts, kHidden}, 0.01f, mx::bfloat16));
  std::vector<Expert> experts = std::vector<Expert>(kExperts);
  mx::array keys = settled(mx::zeros({1, kKVHeads, kContext, kDim})), values = settled(mx::zeros({1, kKVHeads, kContext, kDim}));
};

mx::array f32(const mx::array& a) { return mx::astype(a, mx::float32); }

mx::array product(const mx::array& x, const Matrix& m) {
  return mx::quantized_matmul(x, m.codes, f32(m.scales), f32(m.biases), true, kGroup, kBits);
}

mx::array swiglu(const mx::array& gate, const mx::array& up) {
  return mx::multiply(mx::divide(gate, mx::add(mx::array(2.0f), mx::expm1(mx::negative(gate)))), up);
}

mx::array heads(const mx::array& x, int n) { return mx::transpose(mx::reshape(x, {1, 1, n, kDim}), {0, 2, 1, 3}); }

mx::array rope(const mx::array& x, int n, const mx::array& cos, const mx::array& sin) {
  auto pairs = mx::reshape(x, {1, n, 2, kDim / 2});
  auto a = mx::slice(pairs, {0, 0, 0, 0}, {1, n, 1, kDim / 2}), b = mx::slice(pairs, {0, 0, 1, 0}, {1, n, 2, kDim / 2});
  auto first = mx::subtract(mx::multiply(a, cos), mx::multiply(b, sin));
  auto second = mx::add(mx::multiply(b, cos), mx::multiply(a, sin));
  return mx::reshape(mx::concatenate({first, second}, 2), {1, n * kDim});
}

mx::array attention(Layer& l, const mx::array& x, int pos, const mx::array& cos, const mx::array& sin) {
  auto q = rope(product(x, l.q), kHeads, cos, sin), k = rope(product(x, l.k), kKVHeads, cos, sin), v = product(x, l.v);
  auto append = [&](mx::array& to, const mx::array& from) {
    to = mx::slice_update(to, heads(from, kKVHeads), mx::Shape{0, 0, pos, 0}, mx::Shape{1, kKVHeads, pos + 1, kDim});
    return mx::slice(to, {0, 0, 0, 0}, {1, kKVHeads, pos + 1, kDim});
  };
  auto keys = append(l.keys, k), values = append(l.values, v);
  auto y = mx::fast::scaled_dot_product_attention(heads(q, kHeads), keys, values, 0.125f);
  return product(mx::reshape(mx::transpose(y, {0, 2, 1, 3}), {1, kHeads * kDim}), l.o);
}

// route reads the router's logits and picks the experts on the host.
std::vector<int> route(const Layer& l, const mx::array& x, std::vector<float>& weights) {
  auto logits = mx::matmul(x, mx::transpose(f32(l.router)));
  mx::eval(logits);
  const float* p = logits.data<float>();
  std::vector<int> ids(kExperts);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return p[a] > p[b]; });
  ids.resize(kTopK);
  float sum = 0;
  for (int id : ids) {
    weights.push_back(std::exp(p[id] - p[ids[0]]));
    sum += weights.back();
  }
  for (float& w : weights) {
    w /= sum;
  }
  return ids;
}

mx::array moe(const Layer& l, const mx::array& x) {
  std::vector<float> weights;
  auto ids = route(l, x, weights);
  std::vector<mx::array> outputs;
  for (int id : ids) {
    const auto& e = l.experts[id];
    outputs.push_back(product(swiglu(product(x, e.gate), product(x, e.up)), e.down));
  }
  auto y = mx::reshape(mx::concatenate(std::move(outputs), 0), {1, kTopK, kHidden});
  return mx::sum(mx::multiply(y, mx::array(weights.data(), {1, kTopK, 1})), 1);
}

// Bank is one matrix of all experts of a layer.
struct Bank {
  mx::array codes, scales, biases;  // [experts, rows, ..]
};

Bank bank(const std::vector<Expert>& experts, Matrix Expert::*role) {
  std::vector<mx::array> codes, scales, biases;
  for (const auto& e : experts) {
    codes.push_back((e.*role).codes);
    scales.push_back(f32((e.*role).scales));
    biases.push_back(f32((e.*role).biases));
  }
  return {settled(mx::stack(codes)), settled(mx::stack(scales)), settled(mx::stack(biases))};
}

struct Banks {
  Bank gate, up, down;
};

mx::array gathered(const mx::array& x, const Bank& b, const mx::array& ids) {
  return mx::gather_qmm(x, b.codes, b.scales, b.biases, std::nullopt, ids, true, kGroup, kBits);
}

// moe_graph is moe on the device alone.
mx::array moe_graph(const Layer& l, const Banks& banks, const mx::array& x) {
  auto logits = mx::matmul(x, mx::transpose(f32(l.router)));
  auto ids = mx::slice(mx::argpartition(mx::negative(logits), kTopK - 1, -1), {0, 0}, {1, kTopK});
  auto weights = mx::softmax(mx::take_along_axis(logits, ids, -1), -1, true);
  auto in = mx::reshape(x, {1, 1, 1, kHidden});
  auto inner = swiglu(gathered(in, banks.gate, ids), gathered(in, banks.up, ids));
  auto y = mx::reshape(gathered(inner, banks.down, ids), {1, kTopK, kHidden});
  return mx::sum(mx::multiply(y, mx::reshape(weights, {1, kTopK, 1})), 1);
}

double seconds(const timeval& t) { return t.tv_sec + t.tv_usec * 1e-6; }

double processor() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

void decode(const char* name, bool graph, int tokens) {
  constexpr int warm = 5;
  std::vector<Layer> layers(kLayers);
  auto embedding = matrix(kVocab, kHidden), head = matrix(kVocab, kHidden);
  auto norm = settled(mx::ones({kHidden}));
  std::vector<Banks> banks;
  for (const auto& l : layers) {
    if (graph) {
      banks.push_back({bank(l.experts, &Expert::gate), bank(l.experts, &Expert::up), bank(l.experts, &Expert::down)});
    }
  }
  auto start = std::chrono::steady_clock::now();
  double used = 0;
  for (int i = 0; i < warm + tokens; i++) {
    if (i == warm) {
      start = std::chrono::steady_clock::now();
      used = processor();
    }
    int pos = i % kContext;
    std::vector<float> c(kDim / 2), s(kDim / 2);
    for (int j = 0; j < kDim / 2; j++) {
      float angle = pos * std::pow(10000.0f, -2.0f * j / kDim);
      c[j] = std::cos(angle), s[j] = std::sin(angle);
    }
    mx::array cos(c.data(), {1, 1, 1, kDim / 2}), sin(s.data(), {1, 1, 1, kDim / 2});
    auto id = mx::array({pos}, mx::int32);
    auto pick = [&](const mx::array& a) { return mx::take(a, id, 0); };
    auto h = mx::dequantize(pick(embedding.codes), f32(pick(embedding.scales)), f32(pick(embedding.biases)), kGroup, kBits);
    for (int j = 0; j < kLayers; j++) {
      auto& l = layers[j];
      h = mx::add(h, attention(l, mx::fast::rms_norm(h, l.attn_norm, 1e-5f), pos, cos, sin));
      auto x = mx::fast::rms_norm(h, l.moe_norm, 1e-5f);
      h = mx::add(h, graph ? moe_graph(l, banks[j], x) : moe(l, x));
    }
    auto logits = product(mx::fast::rms_norm(h, norm, 1e-5f), head);
    mx::eval(logits);
    if (!std::isfinite(logits.data<float>()[pos])) {
      std::fprintf(stderr, "token %d: not a number\n", i);
      std::exit(1);
    }
  }
  double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s %.0f %.0f\n", name, wall / tokens * 1e9, (processor() - used) / tokens * 1e9);
}

}  // namespace

// In a thread, like the backend: malloc gives the first thread of a process
// memory in another way.
int main(int argc, char** argv) {
  std::string name = argc > 1 ? argv[1] : "";
  if (name != "loop" && name != "graph") {
    std::fprintf(stderr, "usage: loop loop|graph [TOKENS]\n");
    return 2;
  }
  int tokens = argc > 2 ? std::atoi(argv[2]) : 100;
  std::thread(decode, name.c_str(), name == "graph", tokens).join();
}
