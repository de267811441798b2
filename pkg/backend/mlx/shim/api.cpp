// The table of functions, and the line that no exception crosses.
#include <cstring>
#include <memory>
#include <stdexcept>

#include "engine.h"

#if MLX_VERSION_NUMERIC < SBMLX_MLX_FLOOR
#error "MLX 0.32.4 or newer is needed"
#endif

struct sbmlx_engine : sb::Engine {
  using sb::Engine::Engine;
};

struct sbmlx_slab : sb::Slab {
  using sb::Slab::Slab;
};

#ifdef __APPLE__
// Of the Objective-C runtime, which MLX brings along.
extern "C" void* objc_autoreleasePoolPush(void);
extern "C" void objc_autoreleasePoolPop(void*);
#endif

namespace {

// Pool drains what Metal's objects leave to an autorelease pool, of which a
// thread of a Go program has none.
class Pool {
#ifdef __APPLE__
 public:
  Pool() : pool_(objc_autoreleasePoolPush()) {}
  ~Pool() { objc_autoreleasePoolPop(pool_); }
  Pool(const Pool&) = delete;

 private:
  void* pool_;
#endif
};

// call runs f on an engine and turns what it throws into a code and a text. MLX
// throws std::invalid_argument for a wrong call.
template <typename F>
int call(sbmlx_engine* e, F f) noexcept {
  [[maybe_unused]] Pool pool;
  try {
    e->enter();
    f(*e);
    return SBMLX_OK;
  } catch (const std::logic_error& x) {
    e->report(x.what());
    return SBMLX_WRONG;
  } catch (const std::exception& x) {
    e->report(x.what());
  } catch (...) {
    e->report("an unknown exception");
  }
  return SBMLX_FAILED;
}

sbmlx_engine* open(sbmlx_message* message) noexcept {
  [[maybe_unused]] Pool pool;
  try {
    auto e = std::make_unique<sbmlx_engine>(message);
    if (call(e.get(), [](sb::Engine&) { sb::check_mlx(); }) != SBMLX_OK) {
      return nullptr;
    }
    return e.release();
  } catch (const std::exception& x) {
    std::strncpy(message->text, x.what(), sizeof message->text - 1);
  } catch (...) {
    std::strncpy(message->text, "an unknown exception", sizeof message->text - 1);
  }
  return nullptr;
}

void close(sbmlx_engine* e) noexcept {
  [[maybe_unused]] Pool pool;
  delete e;
}

void info(sbmlx_engine*, sbmlx_info* i) noexcept {
  std::strncpy(i->mlx, mlx::core::version(), sizeof i->mlx - 1);
  i->gpu = mlx::core::default_device() == mlx::core::Device::gpu;
  i->scratch = sb::limits().total();
}

int memory(sbmlx_engine* e, sbmlx_memory* m, int32_t reset_peak) noexcept {
  return call(e, [&](sb::Engine&) {
    m->active = mlx::core::get_active_memory();
    m->cache = mlx::core::get_cache_memory();
    m->peak = mlx::core::get_peak_memory();
    if (reset_peak) {
      mlx::core::reset_peak_memory();
    }
  });
}

sbmlx_slab* slab_new(sbmlx_engine* e, int64_t bytes) noexcept {
  sbmlx_slab* slab = nullptr;
  call(e, [&](sb::Engine&) { slab = new sbmlx_slab(bytes); });
  return slab;
}

void* slab_bytes(sbmlx_slab* s) noexcept { return s->base(); }

void slab_free(sbmlx_slab* s) noexcept {
  [[maybe_unused]] Pool pool;
  s->free();
  delete s;
}

const void* matrix_address(sbmlx_engine* e, int32_t id) noexcept {
  const void* p = nullptr;
  call(e, [&](sb::Engine& e) { p = e.matrix_address(id); });
  return p;
}

const void* kv_address(sbmlx_engine* e, int32_t id) noexcept {
  const void* p = nullptr;
  call(e, [&](sb::Engine& e) { p = e.kv_address(id); });
  return p;
}

using E = sbmlx_engine;
using R = sbmlx_rows;
using L = sbmlx_linear;

const sbmlx_api api = {
    .abi = SBMLX_ABI,
    .mlx = MLX_VERSION_NUMERIC,
    .open = open,
    .close = close,
    .info = info,
    .memory = memory,
    .slab_new = slab_new,
    .slab_bytes = slab_bytes,
    .slab_free = slab_free,
    .matrix = [](E* e, sbmlx_slab* s, const sbmlx_matrix* m) { return call(e, [&](auto& e) { e.matrix(*s, *m); }); },
    .vector = [](E* e, sbmlx_slab* s, int64_t at, int32_t n) { return call(e, [&](auto& e) { e.sb::Engine::vector(*s, at, n); }); },
    .tensor = [](E* e, int32_t rows, int32_t cols) { return call(e, [&](auto& e) { e.tensor(rows, cols); }); },
    .kv = [](E* e, int32_t h, int32_t n, int32_t d, int32_t f16) { return call(e, [&](auto& e) { e.kv(h, n, d, f16); }); },
    .embed = [](E* e, R dst, const int32_t* ids, const L* w) { return call(e, [&](auto& e) { e.embed(dst, ids, *w); }); },
    .rms_norm = [](E* e, R dst, R x, int32_t w, float eps) { return call(e, [&](auto& e) { e.rms_norm(dst, x, w, eps); }); },
    .linear = [](E* e, R dst, R x, const L* w) { return call(e, [&](auto& e) { e.linear(dst, x, *w); }); },
    .angles = [](E* e, const float* c, const float* s, int32_t n, int32_t half) { return call(e, [&](auto& e) { e.angles(c, s, n, half); }); },
    .rope = [](E* e, R x) { return call(e, [&](auto& e) { e.rope(x); }); },
    .attention = [](E* e, R dst, R q, R k, R v, int32_t kv, const sbmlx_attention* s) { return call(e, [&](auto& e) { e.attention(dst, q, k, v, kv, *s); }); },
    .swiglu = [](E* e, R dst, R gate, R up) { return call(e, [&](auto& e) { e.swiglu(dst, gate, up); }); },
    .add = [](E* e, R dst, R x) { return call(e, [&](auto& e) { e.add(dst, x); }); },
    .take = [](E* e, R dst, R x, int32_t from) { return call(e, [&](auto& e) { e.take(dst, x, from); }); },
    .experts = [](E* e, R out, R x, const sbmlx_expert* c, int32_t n, const int32_t* rows) { return call(e, [&](auto& e) { e.experts(out, x, c, n, rows); }); },
    .combine = [](E* e, R dst, R y, const float* w, int32_t k) { return call(e, [&](auto& e) { e.combine(dst, y, w, k); }); },
    .load = [](E* e, R dst, const float* v) { return call(e, [&](auto& e) { e.load(dst, v); }); },
    .project = [](E* e, float* dst, R x, const L* w) { return call(e, [&](auto& e) { e.project(dst, x, *w); }); },
    .read = [](E* e, float* dst, R x, int32_t row) { return call(e, [&](auto& e) { e.read(dst, x, row); }); },
    .sync = [](E* e) { return call(e, [&](auto& e) { e.sync(); }); },
    .matrix_address = matrix_address,
    .kv_address = kv_address,
    .fail = [](E* e, R dst) { return call(e, [&](auto& e) { e.fail(dst); }); },
};

}  // namespace

extern "C" const sbmlx_api* sbmlx_get_api(void) { return &api; }
