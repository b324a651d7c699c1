// Hold adapters on a GPU.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/model/adapter.h"

namespace rose::model {

/// Room for adapters in device memory, in bf16, and for what a pass of at most `tokens` tokens needs beside a model's buffers.
class GpuAdapters {
 public:
  /// `rank` is the most that one may have; it is rounded up to a multiple of 8.
  GpuAdapters(const Config& config, std::int64_t slots, std::int64_t rank, std::int64_t tokens);
  GpuAdapters(const GpuAdapters&) = delete;
  GpuAdapters& operator=(const GpuAdapters&) = delete;

  static std::size_t bytes(const Config& config, std::int64_t slots, std::int64_t rank,
                           std::int64_t tokens);
  std::int64_t slots() const { return slots_; }

  /// Null empties the slot. Waits. Throws core::Error: invalid_argument (check_adapter), out_of_range.
  void set(std::int64_t slot, const Adapter* adapter);

  /// y += the change of a matrix; the rows of slot i are offsets[i] to offsets[i + 1] (device memory).
  void add(std::int64_t layer, Linear which, const kernels::gpu::Matrix& x,
           const kernels::gpu::Matrix& y, const std::int32_t* offsets,
           kernels::gpu::Stream stream) const;
  std::byte* widened() const {
    return widened_;
  }  ///< [tokens, 2 F] bf16: gate and up before they meet

 private:
  Config config_;
  std::int64_t slots_, rank_;
  kernels::gpu::Buffer memory_;
  std::byte *numbers_ = nullptr, *widened_ = nullptr;
  std::byte *a_table_ = nullptr, *b_table_ = nullptr, *scales_ = nullptr;
  kernels::gpu::Workspace low_ = {};
  std::vector<const void*> a_, b_;  // [layers, linears, slots]: what the tables hold
  std::vector<float> scale_;
};

}  // namespace rose::model
