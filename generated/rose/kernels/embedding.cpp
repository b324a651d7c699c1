// Look up a row for each token.

#include "rose/kernels/embedding.h"

#include <fmt/format.h>

#include <cstddef>

#include "rose/core/error.h"
#include "rose/kernels/quant.h"

namespace rose::kernels {

void embedding(std::span<const std::int32_t> ids, const MatrixView& table, std::span<float> out,
               core::ThreadPool& pool) {
  if (out.size() != ids.size() * static_cast<std::size_t>(table.cols)) {
    throw core::Error(core::Code::invalid_argument, "the output does not hold one row per token")
        .in("embedding");
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= table.rows) {
      throw core::Error(core::Code::out_of_range,
                        fmt::format("token id {} is outside [0, {})", id, table.rows))
          .in("ids")
          .hint("is this tokenizer the model's own?");
    }
  }
  pool.for_range(
      static_cast<std::int64_t>(ids.size()), 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          const std::int32_t id = ids[static_cast<std::size_t>(t)];
          dequantize_row(table.dtype, table.row(id), out.data() + t * table.cols, table.cols);
        }
      });
}

}  // namespace rose::kernels
