// Embedding, backward.

#include "rose/kernels/embedding_backward.h"

#include <fmt/format.h>

#include "rose/core/error.h"

namespace rose::kernels {

void embedding_backward(std::span<const std::int32_t> ids, std::span<const float> dy,
                        std::span<float> dtable, std::int64_t columns, core::ThreadPool& pool) {
  const std::int64_t rows = columns == 0 ? 0 : static_cast<std::int64_t>(dtable.size()) / columns;
  if (dy.size() != ids.size() * static_cast<std::size_t>(columns)) {
    throw core::Error(core::Code::invalid_argument, "dy does not have one row per id")
        .in("embedding_backward");
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= rows) {
      throw core::Error(core::Code::out_of_range, fmt::format("id {} is outside [0, {})", id, rows))
          .in("embedding_backward");
    }
  }
  pool.for_range(columns, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t t = 0; t < ids.size(); ++t) {
      float* to = dtable.data() + ids[t] * columns;
      const float* from = dy.data() + static_cast<std::int64_t>(t) * columns;
      for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
    }
  });
}

}  // namespace rose::kernels
