// Divide a budget of memory, and name each part.

#include "rose/infer/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "rose/core/error.h"
#include "rose/core/hash.h"

namespace rose::infer {

std::int64_t MemoryPlan::taken() const {
  std::int64_t sum = 0;
  for (const MemoryTerm& term : terms) sum += term.bytes;
  return sum;
}

std::int64_t MemoryPlan::positions() const {
  return (pages - 1) * page_size;
}

// One term a line, in megabytes.
std::string MemoryPlan::describe() const {
  constexpr double mega = 1e6;
  std::string out;
  const auto line = [&](std::string_view name, std::int64_t bytes) {
    fmt::format_to(std::back_inserter(out), "{:>12.1f} MB  {}\n", static_cast<double>(bytes) / mega,
                   name);
  };
  for (const MemoryTerm& term : terms) line(term.name, term.bytes);
  line(fmt::format("{} pages of {} positions, one of them scratch", pages, page_size),
       pages * page_bytes);
  line("budget", budget);
  return out;
}

std::int64_t kv_page_bytes(const model::Config& config, int page_size, kernels::DType dtype) {
  const std::int64_t numbers = config.layers * config.kv_heads * config.head_dim * page_size;
  return 2 * static_cast<std::int64_t>(kernels::row_bytes(dtype, numbers));
}

// Give the pages what the terms leave.
MemoryPlan plan_pages(std::int64_t budget, std::vector<MemoryTerm> terms, std::int64_t page_bytes,
                      int page_size, std::int64_t wanted, std::int64_t least) {
  MemoryPlan plan{budget, std::move(terms), page_bytes, page_size, 0};
  const std::int64_t left = budget - plan.taken();
  const std::int64_t fitting = left < 0 ? 0 : left / page_bytes;
  plan.pages = wanted > 0 ? std::min(fitting, wanted + 1) : fitting;
  if (plan.pages - 1 >= std::max<std::int64_t>(least, 1)) return plan;
  const auto largest = std::ranges::max_element(plan.terms, {}, &MemoryTerm::bytes);
  const std::string most = largest == plan.terms.end()
                               ? std::string("the budget itself is too small")
                               : fmt::format("the largest part of it, {}, takes {} bytes",
                                             largest->name, largest->bytes);
  throw core::Error(core::Code::resource_exhausted,
                    fmt::format("{} bytes leave room for {} pages of keys and values, and {} are "
                                "needed: {} bytes are taken; {}",
                                budget, std::max<std::int64_t>(plan.pages - 1, 0),
                                std::max<std::int64_t>(least, 1), plan.taken(), most))
      .in("memory")
      .hint(
          "raise the budget, or lower --max-model-len, --max-num-batched-tokens or --max-num-seqs");
}

// Read the name of a cache type.
kernels::DType parse_kv_dtype(std::string_view name, kernels::DType fallback) {
  using kernels::DType;
  if (name == "auto" || name.empty()) return fallback;
  if (name == "f32" || name == "float32" || name == "float") return DType::f32;
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  if (name == "f16" || name == "fp16" || name == "float16" || name == "half") return DType::f16;
  if (name == "fp8" || name == "fp8_e4m3") return DType::u8;
  const bool eight_bits = name.starts_with("fp8");
  throw core::Error(eight_bits ? core::Code::unsupported : core::Code::invalid_argument,
                    eight_bits ? fmt::format("keys and values in {} are not implemented", name)
                               : fmt::format("'{}' is not a type of keys and values", name))
      .in("kv-cache-dtype")
      .hint("auto, float32, bfloat16, float16 or fp8");
}

std::uint64_t kv_key(kernels::DType dtype, const KvScales& scales) {
  const auto bytes = [](const std::vector<float>& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(float));
  };
  std::string all(1, static_cast<char>(dtype));
  all.append(bytes(scales.k)).append(bytes(scales.v));
  return core::xxh3(all);
}

}  // namespace rose::infer
