// Give every format's tensors one shape.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rose/kernels/dtype.h"

namespace rose::kernels {
struct PackedMatrix;  // rose/kernels/packed.h
}

namespace rose::model {

/// One weight as the rest of the program sees it, whatever file it came from. Row-major, aligned to
/// its elements; a linear weight is [out, in].
struct TensorInfo {
  std::string name;  ///< canonical: `layers.3.attn.q.weight`
  kernels::DType dtype = kernels::DType::f32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  ///< in the mapped file, or rearranged in memory
  std::size_t bytes = 0;
  std::shared_ptr<const void> owner;  ///< keeps `data` alive: copy it beside the pointer
  std::shared_ptr<const kernels::PackedMatrix>
      packed{};  ///< the weight in few bits, and then `data` is null

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t d : shape) n *= d;
    return n;
  }
};

}  // namespace rose::model
