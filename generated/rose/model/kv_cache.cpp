// Own a dense key-value cache.

#include "rose/model/kv_cache.h"

#include <numeric>

#include "rose/core/error.h"

namespace rose::model {

KvCache::KvCache(const Config& config, std::int64_t sequences, std::int64_t capacity,
                 kernels::DType dtype) {
  const bool known =
      dtype == kernels::DType::f32 || dtype == kernels::DType::f16 || dtype == kernels::DType::bf16;
  if (sequences <= 0 || capacity <= 0 || capacity > (std::int64_t{1} << 24) || !known) {
    throw core::Error(core::Code::invalid_argument,
                      "a cache needs sequences, positions, and a type of f32, f16 or bf16")
        .in("KvCache");
  }
  data_bytes_ = static_cast<std::size_t>(config.layers * sequences * config.kv_heads * capacity) *
                kernels::row_bytes(dtype, config.head_dim);
  k_.resize(data_bytes_);
  v_.resize(data_bytes_);
  table_.resize(static_cast<std::size_t>(sequences));
  std::iota(table_.begin(), table_.end(), 0);
  view_ = {.k = k_.data(),
           .v = v_.data(),
           .dtype = dtype,
           .layers = static_cast<int>(config.layers),
           .kv_heads = static_cast<int>(config.kv_heads),
           .head_dim = static_cast<int>(config.head_dim),
           .page_size = static_cast<int>(capacity),
           .pages = sequences,
           .page_table = table_.data(),
           .table_stride = 1};
}

}  // namespace rose::model
