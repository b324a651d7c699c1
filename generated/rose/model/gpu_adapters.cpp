// Hold adapters on a GPU.

#include "rose/model/gpu_adapters.h"

#include <fmt/format.h>

#include "rose/core/error.h"

namespace rose::model {
namespace {

constexpr std::int64_t element = 2;  // bytes of a bf16

// Where everything lies.
std::int64_t padded(std::int64_t rank) {
  constexpr std::int64_t unit = 8;
  return (rank + unit - 1) / unit * unit;
}

std::size_t lines(std::int64_t bytes) {
  constexpr std::int64_t line = 256;
  return static_cast<std::size_t>((bytes + line - 1) / line * line);
}

/// Bytes of A, then of B, in one slot.
std::size_t a_bytes(const LinearSize& size, std::int64_t rank) {
  return lines(rank * size.in * element);
}
std::size_t b_bytes(const LinearSize& size, std::int64_t rank) {
  return lines(size.out * rank * element);
}
std::size_t layer_bytes(const Config& config, std::int64_t rank) {
  std::size_t total = 0;
  for (std::size_t i = 0; i < linears; ++i) {
    const LinearSize size = linear_size(config, static_cast<Linear>(i));
    if (size.out > 0) total += a_bytes(size, rank) + b_bytes(size, rank);
  }
  return total;
}

std::size_t table_entries(const Config& config, std::int64_t slots) {
  return static_cast<std::size_t>(config.layers * slots) * linears;
}

std::vector<kernels::bf16> rounded(const std::vector<float>& values, std::int64_t rows,
                                   std::int64_t cols, std::int64_t to_cols, std::int64_t to_rows) {
  std::vector<kernels::bf16> out(static_cast<std::size_t>(to_rows * to_cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      out[static_cast<std::size_t>(r * to_cols + c)] =
          kernels::to_bf16(values[static_cast<std::size_t>(r * cols + c)]);
  return out;
}

}  // namespace

// Measure, and take the room.
std::size_t GpuAdapters::bytes(const Config& config, std::int64_t slots, std::int64_t rank,
                               std::int64_t tokens) {
  if (slots == 0) return 0;
  rank = padded(rank);
  const std::size_t table = lines(static_cast<std::int64_t>(table_entries(config, slots) * 8));
  return static_cast<std::size_t>(config.layers * slots) * layer_bytes(config, rank) + 2 * table +
         lines(slots * 4) + lines(tokens * 2 * config.ffn * element) +
         lines(static_cast<std::int64_t>(kernels::gpu::adapters_workspace(tokens, rank)));
}

GpuAdapters::GpuAdapters(const Config& config, std::int64_t slots, std::int64_t rank,
                         std::int64_t tokens)
    : config_(config),
      slots_(slots),
      rank_(padded(rank)),
      memory_(bytes(config, slots, rank, tokens)),
      a_(table_entries(config, slots)),
      b_(table_entries(config, slots)),
      scale_(static_cast<std::size_t>(slots)) {
  const std::size_t table = lines(static_cast<std::int64_t>(a_.size() * sizeof(void*)));
  auto* at = memory_.as<std::byte>();
  const auto take = [&](std::size_t n) {
    std::byte* const piece = at;
    at += n;
    return piece;
  };
  numbers_ = take(static_cast<std::size_t>(config.layers * slots) * layer_bytes(config, rank_));
  a_table_ = take(table);
  b_table_ = take(table);
  scales_ = take(lines(slots * 4));
  widened_ = take(lines(tokens * 2 * config.ffn * element));
  const std::size_t low = kernels::gpu::adapters_workspace(tokens, rank_);
  low_ = {take(lines(static_cast<std::int64_t>(low))), low};
  for (std::int64_t slot = 0; slot < slots; ++slot) set(slot, nullptr);
}

// Fill a slot, or empty it.
void GpuAdapters::set(std::int64_t slot, const Adapter* adapter) {
  if (slot < 0 || slot >= slots_)
    throw core::Error(core::Code::out_of_range, fmt::format("slot {} of {}", slot, slots_))
        .in("adapter");
  if (adapter != nullptr) {
    check_adapter(config_, *adapter);
    if (adapter->rank > rank_)
      throw core::Error(core::Code::out_of_range,
                        fmt::format("a rank of {}, and there is room for {}", adapter->rank, rank_))
          .in("adapter")
          .hint("--max-lora-rank makes room");
  }
  const auto base = memory_.as<std::byte>();
  std::byte* at =
      numbers_ + static_cast<std::size_t>(slot * config_.layers) * layer_bytes(config_, rank_);
  const auto upload = [&](std::byte* to, const auto& values) {
    memory_.upload(std::as_bytes(std::span(values)), static_cast<std::size_t>(to - base));
  };
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      const LinearSize size = linear_size(config_, static_cast<Linear>(i));
      const std::size_t entry =
          (static_cast<std::size_t>(layer) * linears + i) * static_cast<std::size_t>(slots_) +
          static_cast<std::size_t>(slot);
      a_[entry] = b_[entry] = nullptr;
      if (size.out == 0) continue;
      if (adapter != nullptr && !adapter->at(layer, static_cast<Linear>(i)).a.empty()) {
        const LowRank& pair = adapter->at(layer, static_cast<Linear>(i));
        upload(at, rounded(pair.a, adapter->rank, size.in, size.in, rank_));
        upload(at + a_bytes(size, rank_),
               rounded(pair.b, size.out, adapter->rank, rank_, size.out));
        a_[entry] = at;
        b_[entry] = at + a_bytes(size, rank_);
      }
      at += a_bytes(size, rank_) + b_bytes(size, rank_);
    }
  }
  scale_[static_cast<std::size_t>(slot)] = adapter == nullptr ? 0.0f : adapter->scale;
  upload(a_table_, a_);
  upload(b_table_, b_);
  upload(scales_, scale_);
}

// Add the change of one matrix.
void GpuAdapters::add(std::int64_t layer, Linear which, const kernels::gpu::Matrix& x,
                      const kernels::gpu::Matrix& y, const std::int32_t* offsets,
                      kernels::gpu::Stream stream) const {
  const std::size_t entry =
      (static_cast<std::size_t>(layer) * linears + static_cast<std::size_t>(which)) *
      static_cast<std::size_t>(slots_);
  const kernels::gpu::Adapters adapters{.a = reinterpret_cast<const void* const*>(a_table_) + entry,
                                        .b = reinterpret_cast<const void* const*>(b_table_) + entry,
                                        .scales = reinterpret_cast<const float*>(scales_),
                                        .offsets = offsets,
                                        .count = slots_,
                                        .rank = rank_};
  kernels::gpu::add_adapters(x, adapters, y, low_, stream);
}

}  // namespace rose::model
