// Choose tokens on a GPU.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/stream.h"
#include "rose/kernels/sampling.h"

namespace rose::kernels::gpu {

/// kernels::LogitAdjustment for every row, all in device memory. The lists of row r are entries offsets[r] to offsets[r + 1] - 1;
/// ids are unique within a list. What is null is not done.
struct LogitAdjustments {
  const std::int32_t *bias_offsets = nullptr, *bias_ids = nullptr;
  const float* bias_values = nullptr;
  const std::uint32_t* mask =
      nullptr;                  ///< [R, mask_words]; bit v % 32 of word v / 32 allows token v
  std::int64_t mask_words = 0;  ///< at least ceil(V / 32)
  const std::int32_t *context_offsets = nullptr, *context_ids = nullptr, *context_counts = nullptr;
  const float *repetition = nullptr, *frequency = nullptr,
              *presence = nullptr;  ///< [R] each, with the context
};

/// logits [R, V] f32, in place. Bit for bit kernels::adjust_logits.
void adjust_logits(const Matrix& logits, const LogitAdjustments& adjustments, Stream stream);

/// kernels::sample for every row; params [R] in device memory, validated by the caller. tokens [R]; logprobs [R] or null. Exponentials
/// and logarithms are the GPU's, so a cut or a draw that hangs on their last bits may differ from the CPU's.
void sample(const Matrix& logits, const SamplingParams* params, std::int32_t* tokens,
            float* logprobs, Stream stream);

inline constexpr int most_top_logprobs = 64;

/// The `count` largest logits of every row, equal ones by lowest id: ids [R, count], and logprobs [R, count] = logit - lse[r].
/// Where the vocabulary is smaller than count, the rest is -1 and -inf. A row that holds NaN gives -1 throughout.
void top_logprobs(const Matrix& logits, const float* lse, int count, std::int32_t* ids,
                  float* logprobs, Stream stream);

}  // namespace rose::kernels::gpu
