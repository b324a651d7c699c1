// Train an adapter in a GPU's memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rose/kernels/dropout.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/model/adapter.h"
#include "rose/model/gpu_backward.h"

namespace rose::model {

/// One matrix of a pair: where its rows lie among all that is trained.
struct PairTensor {
  std::string name;                 ///< "layers.0.attn.q.lora_a"
  std::vector<std::int64_t> shape;  ///< without what is filled up
  std::int64_t first = 0;           ///< in each array
  std::int64_t rows = 0, cols = 0;  ///< filled up
};

enum class PairArray : std::uint8_t { masters, gradients, first, second };

/// An adapter's masters, gradients and moments in fp32, and its part of both passes, in bf16 or f32.
class GpuTrainedAdapter final : public BesideProducts {
 public:
  GpuTrainedAdapter(const Config& config, const Adapter& start, kernels::DType dtype,
                    std::int64_t tokens);

  /// What the next passes leave out; empty: nothing.
  void thin(std::optional<kernels::Dropout> pass) { thin_ = pass; }
  void zero_gradients(kernels::gpu::Stream stream) const;
  /// AdamW on all pairs, and the copy that passes read.
  void step(const kernels::AdamWStep& step, float scale, kernels::gpu::Stream stream) const;
  /// The norm's square, in the order of the tensors. Waits.
  double square_sum(kernels::gpu::Stream stream) const;

  std::span<const PairTensor> tensors() const { return tensors_; }  ///< blocks, matrices, A, B
  /// Of one tensor, without what is filled up. Wait.
  std::vector<float> read(PairArray of, const PairTensor& tensor) const;
  void write(PairArray of, const PairTensor& tensor, std::span<const float> values);
  Adapter adapter() const;  ///< a copy on the host
  std::size_t bytes() const { return memory_.bytes() + scratch_.bytes() + rows_.bytes(); }

  void forward(std::size_t layer, BlockProduct which, const kernels::gpu::Matrix& x,
               const kernels::gpu::Matrix& y, kernels::gpu::Stream stream) override;
  void before_back(std::size_t layer, BlockProduct which, const kernels::gpu::Matrix& dy,
                   const kernels::gpu::Matrix& x, kernels::gpu::Stream stream) override;
  void after_back(std::size_t layer, BlockProduct which, const kernels::gpu::Matrix& dx,
                  kernels::gpu::Stream stream) override;

 private:
  struct Pair {
    Linear which{};
    std::size_t a = 0, b = 0;  ///< of tensors_
    std::int64_t column = 0;   ///< of y, where its columns begin
  };
  float* array(PairArray of) const {
    return memory_.as<float>() + static_cast<std::int64_t>(of) * size_;
  }
  std::span<const Pair> pairs(std::size_t layer, BlockProduct which) const;
  kernels::gpu::Matrix weight(std::size_t tensor) const;
  kernels::gpu::Matrix slope(std::size_t tensor) const;
  kernels::gpu::Matrix columns(const kernels::gpu::Matrix& of, const Pair& pair) const;
  kernels::gpu::Matrix low(std::size_t place, std::int64_t rows) const;  ///< [T, rank]
  kernels::gpu::Matrix wide(std::size_t place, std::int64_t rows, std::int64_t cols) const;
  kernels::gpu::Matrix thinned(std::size_t layer, Linear which, const kernels::gpu::Matrix& x,
                               kernels::gpu::Stream stream) const;
  void refresh(kernels::gpu::Stream stream) const;

  Config config_;
  kernels::DType dtype_;
  std::int64_t tokens_, rank_, padded_, widest_ = 0, size_ = 0;
  float scale_;
  std::vector<PairTensor> tensors_;
  std::vector<std::vector<Pair>> pairs_;  // by block and product
  kernels::gpu::Buffer memory_;           // masters, gradients, moments, copy
  kernels::gpu::Buffer blocks_, sums_, rows_, scratch_;
  std::int64_t block_count_ = 0;
  kernels::gpu::LinearPlans plans_{false};
  kernels::gpu::BackwardPlans back_plans_{false};
  std::optional<kernels::Dropout> thin_;
};

}  // namespace rose::model
