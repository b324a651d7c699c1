// Pack a model's matrices into few bits.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "rose/core/parallel.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/model/weights.h"

namespace rose::model {

struct PackOptions {
  std::optional<kernels::gpu::WeightFormat>
      format{};            ///< of matrices that are not packed yet; none: they stay
  std::int64_t group = 0;  ///< columns that share a scale; 0: all of a row
  bool plain = true;       ///< with what the bits stand for, in bf16, as a CPU needs it
};

/// What `--quantization` says: none, int8, int4 or fp8. `group` below 0 is the usual size: 128, and whole rows for fp8.
/// Throws core::Error (invalid_argument, unsupported) for any other name.
PackOptions parse_quantization(std::string_view name, std::int64_t group = -1);

/// The weights with the matrices of their blocks packed, those whose columns fit the format. Returns the same set when there is nothing to
/// do. Throws core::Error (invalid_argument) for weights that are packed already and shall be packed in another format.
std::shared_ptr<const WeightSet> pack_weights(const std::shared_ptr<const WeightSet>& weights,
                                              const PackOptions& options,
                                              core::ThreadPool& pool = core::default_pool());

}  // namespace rose::model
