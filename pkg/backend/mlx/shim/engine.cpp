#include "engine.h"

#include <cstring>
#include <mutex>
#include <stdexcept>

namespace sb {
namespace {

// Streams that may be used from any thread, by one engine at a time. MLX
// cannot destroy a stream, so engines pass them on.
class Streams {
 public:
  static mx::Stream take() {
    std::lock_guard lock(mutex());
    if (idle().empty()) {
      return mx::new_thread_unsafe_stream(mx::default_device());
    }
    auto s = idle().back();
    idle().pop_back();
    return s;
  }
  static void give(mx::Stream s) {
    std::lock_guard lock(mutex());
    idle().push_back(s);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<mx::Stream>& idle() {
    static std::vector<mx::Stream> streams;
    return streams;
  }
};

}  // namespace

Limits limits() {
  if (mx::default_device() == mx::Device::gpu) {
    return {64 << 20, 32 << 20, 128 << 20};
  }
  return {8 << 20, 4 << 20, 16 << 20};
}

Engine::Engine(sbmlx_message* message) : message_(message), limits_(limits()), stream_(Streams::take()) {
  mx::set_cache_limit(limits_.cache);
}

Engine::~Engine() {
  // Queued work may read what is about to go. What it computes, nobody wants.
  try {
    mx::synchronize(stream_);
  } catch (...) {
  }
  Streams::give(stream_);
}

void Engine::enter() { mx::set_default_stream(stream_); }

void Engine::report(const char* text) {
  std::strncpy(message_->text, text, sizeof message_->text - 1);
  message_->text[sizeof message_->text - 1] = 0;
}

void Engine::tensor(int rows, int cols) { registers_.push_back({rows, cols, std::nullopt}); }

void Engine::kv(int heads, int context, int head_dim, bool f16) {
  mx::Shape shape{1, heads, context, head_dim};
  auto type = f16 ? mx::float16 : mx::float32;
  caches_.push_back({owned(shape, type), owned(shape, type)});
}

// get returns the first rows of a register. A register that nothing was
// written to is zero.
mx::array Engine::get(sbmlx_rows x) const {
  const auto& r = registers_.at(x.id - 1);
  if (r.lost) {
    throw std::invalid_argument("register " + std::to_string(x.id) + " was lost in an evaluation that failed");
  }
  if (!r.value) {
    return mx::zeros({x.rows, r.cols});
  }
  int held = r.value->shape(0);
  if (x.rows > held) {
    throw std::invalid_argument("register " + std::to_string(x.id) + " holds " + std::to_string(held) +
                                " rows since the last op, not " + std::to_string(x.rows));
  }
  if (x.rows == held) {
    return *r.value;
  }
  return mx::slice(*r.value, {0, 0}, {x.rows, r.cols});
}

void Engine::put(sbmlx_rows dst, mx::array value) {
  auto& r = registers_.at(dst.id - 1);
  count(3 * value.nbytes());  // with what the op made on the way
  r.value = std::move(value);
  r.fresh = true;
  r.lost = false;
  settle({});
}

// settle begins to compute what was built so far, once it is a lot, and waits
// for the portion before it: the device stays busy, and two portions at most
// are under way. partial is what an op has so far, in no register yet.
void Engine::settle(const std::vector<mx::array>& partial) {
  if (built_bytes_ <= limits_.built) {
    return;
  }
  built_bytes_ = 0;
  auto results = fresh();
  results.insert(results.begin(), partial.begin(), partial.end());
  if (results.empty()) {
    return;
  }
  try {
    mx::async_eval(results);
    if (ticket_) {
      ticket_->wait();
    }
  } catch (...) {
    forget();
    throw;
  }
  // One result stands for all. It is none of a cache, as a second reference
  // would make MLX copy that at the next step.
  ticket_ = results.front();
}

// finish computes wanted and everything else that is still to be computed.
void Engine::finish(std::vector<mx::array> wanted) {
  auto results = fresh();
  results.insert(results.end(), wanted.begin(), wanted.end());
  try {
    mx::eval(std::move(results));
    if (ticket_) {
      ticket_->wait();
    }
  } catch (...) {
    forget();
    throw;
  }
  built_bytes_ = 0;
  ticket_.reset();
  for (auto& r : registers_) {
    r.fresh = false;
  }
  for (auto& c : caches_) {
    c.fresh = false;
  }
}

// fresh lists what ops left to be computed, registers first.
std::vector<mx::array> Engine::fresh() const {
  std::vector<mx::array> results;
  for (const auto& r : registers_) {
    if (r.fresh) {
      results.push_back(*r.value);
    }
  }
  for (const auto& c : caches_) {
    if (c.fresh) {
      results.push_back(c.keys);
      results.push_back(c.values);
    }
  }
  return results;
}

// forget drops what a failed evaluation was to compute: MLX may have marked
// it as computed.
void Engine::forget() {
  built_bytes_ = 0;
  ticket_.reset();
  for (auto& r : registers_) {
    if (r.fresh) {
      r.value.reset();
      r.fresh = false;
      r.lost = true;
    }
  }
  for (auto& c : caches_) {
    if (c.fresh) {
      c = {owned(c.keys.shape(), c.keys.dtype()), owned(c.values.shape(), c.values.dtype())};
    }
  }
}

void Engine::load(sbmlx_rows dst, const float* values) {
  put(dst, mx::array(values, {dst.rows, registers_.at(dst.id - 1).cols}));
}

void Engine::fail(sbmlx_rows dst) { put(dst, failing({dst.rows, registers_.at(dst.id - 1).cols})); }

namespace {

// copy_row copies a row of a computed matrix, whatever its strides.
void copy_row(float* dst, const mx::array& a, int row) {
  auto from = a.data<float>() + row * a.strides(0);
  int64_t n = a.shape(1), step = a.strides(1);
  if (step == 1) {
    std::memcpy(dst, from, n * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    dst[i] = from[i * step];
  }
}

}  // namespace

void Engine::read(float* dst, sbmlx_rows x, int row) {
  auto a = get(x);
  finish({a});
  copy_row(dst, a, row);
}

void Engine::project(float* dst, sbmlx_rows x, const sbmlx_linear& w) {
  auto y = apply(get(x), w);
  finish({y});
  for (int row = 0; row < y.shape(0); row++) {
    copy_row(dst + int64_t(row) * y.shape(1), y, row);
  }
}

const void* Engine::matrix_address(int id) const { return at(id).part(0).data<void>(); }

const void* Engine::kv_address(int id) {
  sync();
  return caches_.at(id - 1).keys.data<void>();
}

}  // namespace sb
