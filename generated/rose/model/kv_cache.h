// Own a dense key-value cache.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rose/kernels/kv_view.h"
#include "rose/model/files/config.h"

namespace rose::model {

/// A contiguous cache: each sequence owns one page of `capacity` positions.
class KvCache {
 public:
  KvCache(const Config& config, std::int64_t sequences, std::int64_t capacity,
          kernels::DType dtype = kernels::DType::f32);
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;
  KvCache(const KvCache&) = delete;  // the view points into the buffers
  KvCache& operator=(const KvCache&) = delete;

  const kernels::KvView& view() const { return view_; }
  std::int64_t capacity() const { return view_.page_size; }
  std::size_t bytes() const { return 2 * data_bytes_; }

 private:
  std::vector<std::byte> k_, v_;
  std::vector<std::int32_t> table_;
  std::size_t data_bytes_ = 0;
  kernels::KvView view_;
};

}  // namespace rose::model
