#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace sb {
namespace {

constexpr int64_t kAlign = 16 << 10;  // a page of Apple silicon

// allocate returns a buffer or throws. MLX's CPU allocator returns null when
// memory is out and has then counted the bytes as used, for good; so ask
// malloc, which it wraps, first.
mx::allocator::Buffer allocate(size_t bytes) {
  void* probe = std::malloc(bytes);
  std::free(probe);
  mx::allocator::Buffer buffer(nullptr);
  if (probe != nullptr) {
    buffer = mx::allocator::allocator().malloc(bytes);
  }
  if (buffer.ptr() == nullptr) {
    throw std::runtime_error("out of memory: " + std::to_string(bytes) + " bytes");
  }
  return buffer;
}

// make returns an array over a whole buffer. MLX never overwrites it in place:
// it does so only with buffers that its own function malloc returned.
mx::array make(mx::allocator::Buffer buffer, int64_t bytes) {
  // A dimension has 32 bits; a slab may be larger.
  mx::Shape shape{static_cast<int>(bytes / kAlign), static_cast<int>(kAlign)};
  auto release = [](mx::allocator::Buffer b) { mx::allocator::allocator().free(b); };
  return mx::array(mx::allocator::Data(buffer, release), std::move(shape), mx::uint8);
}

}  // namespace

Slab::Slab(int64_t bytes) : memory_(mx::array(0)), base_(nullptr) {
  // Room to align, as MLX's buffers begin at any multiple of 8.
  int64_t size = (bytes + kAlign - 1) / kAlign * kAlign + kAlign;
  memory_ = make(allocate(size), size);
  auto start = memory_.data<uint8_t>();
  base_ = start + (-reinterpret_cast<uintptr_t>(start) & (kAlign - 1));
  std::memset(base_, 0, size - kAlign);  // pages that are missing show here
}

std::shared_ptr<Views> Slab::bind(Views views) {
  auto shared = std::make_shared<Views>(std::move(views));
  bound_.push_back(shared);
  return shared;
}

mx::array Slab::view(int64_t offset, mx::Shape shape, mx::Dtype dtype) const {
  mx::Strides strides(shape.size(), 1);
  for (int i = static_cast<int>(shape.size()) - 2; i >= 0; i--) {
    strides[i] = strides[i + 1] * shape[i + 1];
  }
  return strided(offset, std::move(shape), std::move(strides), dtype, true);
}

mx::array Slab::strided(int64_t offset, mx::Shape shape, mx::Strides strides, mx::Dtype dtype, bool row_major) const {
  int64_t span = 1, longest = 1, size = 1;
  for (size_t i = 0; i < shape.size(); i++) {
    span += (shape[i] - 1) * strides[i];
    longest = std::max<int64_t>(longest, shape[i]);
    size *= shape[i];
  }
  mx::array a(std::move(shape), dtype, nullptr, {});
  // Flags that claim too little make MLX copy the weight in every call.
  mx::array::Flags flags{row_major, row_major, row_major && size == longest};
  int64_t start = base_ - memory_.data<uint8_t>() + offset;
  a.copy_shared_buffer(memory_, strides, flags, span, start / static_cast<int64_t>(mx::size_of(dtype)));
  a.set_status(mx::array::Status::available);
  return a;
}

void Slab::free() {
  for (auto& weak : bound_) {
    if (auto views = weak.lock()) {
      views->clear();
    }
  }
  bound_.clear();
  memory_ = mx::array(0);
}

mx::array owned(mx::Shape shape, mx::Dtype dtype) {
  size_t bytes = mx::size_of(dtype);
  for (auto n : shape) {
    bytes *= n;
  }
  void* probe = std::malloc(bytes);  // see allocate
  std::free(probe);
  if (probe == nullptr) {
    throw std::runtime_error("out of memory: " + std::to_string(bytes) + " bytes");
  }
  auto data = mx::allocator::malloc(bytes);
  if (data.buffer().ptr() == nullptr) {
    throw std::runtime_error("out of memory: " + std::to_string(bytes) + " bytes");
  }
  std::memset(data.buffer().raw_ptr(), 0, bytes);
  return mx::array(std::move(data), std::move(shape), dtype);
}

}  // namespace sb
