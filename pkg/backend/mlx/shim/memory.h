// Memory that kernels read weights from.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mlx/mlx.h"

namespace sb {

namespace mx = mlx::core;

// The views of a slab that make up one weight. Freeing the slab clears them.
using Views = std::vector<mx::array>;

// Slab is memory from MLX's allocator, so that it is a buffer of the device,
// into which the Go half reads records. Views of it are not copies: kernels
// read what was read from the disk, at the same address.
class Slab {
 public:
  explicit Slab(int64_t bytes);

  uint8_t* base() const { return base_; }

  // bind makes the views of one weight live as long as the slab's memory.
  std::shared_ptr<Views> bind(Views views);

  // view is row-major [shape] of a type, offset bytes from the start.
  mx::array view(int64_t offset, mx::Shape shape, mx::Dtype dtype) const;

  // strided is a view with any strides, in elements; row_major says that they
  // are those of view.
  mx::array strided(int64_t offset, mx::Shape shape, mx::Strides strides, mx::Dtype dtype, bool row_major) const;

  // free gives up the memory, and with it every weight in it.
  void free();

 private:
  mx::array memory_;
  uint8_t* base_;
  std::vector<std::weak_ptr<Views>> bound_;
};

// owned is zeroed memory for a value that MLX may overwrite in place.
mx::array owned(mx::Shape shape, mx::Dtype dtype);

}  // namespace sb
