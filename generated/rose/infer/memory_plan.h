// Divide a budget of memory, and name each part.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rose/kernels/dtype.h"
#include "rose/model/files/config.h"

namespace rose::infer {

struct MemoryTerm {
  std::string name;  ///< "weights", "logits of 256 rows", …
  std::int64_t bytes = 0;
};

/// Where an engine's memory goes. Pages get what the terms leave of the budget.
struct MemoryPlan {
  std::int64_t budget = 0;
  std::vector<MemoryTerm> terms;
  std::int64_t page_bytes = 0;
  int page_size = 0;       ///< positions
  std::int64_t pages = 0;  ///< page 0, which is scratch, included

  std::int64_t taken() const;      ///< by the terms
  std::int64_t positions() const;  ///< that the usable pages hold
  std::string describe() const;    ///< a table for people, one term a line
};

/// Bytes of one page: keys and values of page_size positions in every layer.
std::int64_t kv_page_bytes(const model::Config& config, int page_size, kernels::DType dtype);

/// As many pages as fit, or `wanted` of them. Throws core::Error (resource_exhausted) that names the largest term when fewer than
/// `least` usable pages would be left.
MemoryPlan plan_pages(std::int64_t budget, std::vector<MemoryTerm> terms, std::int64_t page_bytes,
                      int page_size, std::int64_t wanted = 0, std::int64_t least = 1);

/// What the numbers of a cache of eight bits are multiplied by, [layers * kv_heads] each; empty: 1.
struct KvScales {
  std::vector<float> k{}, v{};

  bool operator==(const KvScales&) const = default;
};

/// Tells caches apart whose bytes mean different things.
std::uint64_t kv_key(kernels::DType dtype, const KvScales& scales);

/// What `--kv-cache-dtype` says: auto (the fallback), f32, bf16, f16 or fp8 (e4m3, kept as u8) under their usual names. Throws
/// core::Error (unsupported) for a type that no kernel of ours reads.
kernels::DType parse_kv_dtype(std::string_view name, kernels::DType fallback);

}  // namespace rose::infer
