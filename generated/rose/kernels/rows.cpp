#include "rose/kernels/rows.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>

#include "rose/core/error.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/quant.h"

namespace rose::kernels {

void expand_row(DType dtype, const void* row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* from = static_cast<const std::byte*>(row) + row_bytes(dtype, first);
  switch (dtype) {
    // Read the unquantised types.
    case DType::f32:
      std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::f16: {
      const auto* half = reinterpret_cast<const f16*>(from);
      for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(half[i]);
      return;
    }
    case DType::bf16: {
      const auto* half = reinterpret_cast<const bf16*>(from);
      for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(half[i]);
      return;
    }
    // And every quantised type, block by block.
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
    case DType::q6_k:
      dequantize_row(dtype, from, out, count);
      return;
    default:
      throw core::Error(core::Code::unsupported, fmt::format("weights of type {} cannot be read here", info(dtype).name));
  }
}

}  // namespace rose::kernels
