// Compute steps on a GPU.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rose/infer/step.h"

namespace rose::infer {

struct GpuRunnerOptions {
  std::int64_t tokens = 8192;       ///< of a step, at most
  std::int64_t sequences = 256;     ///< of a step, at most
  std::int64_t rows = 0;            ///< choices of a step, at most; 0: as many as sequences
  std::int64_t positions = 0;       ///< of a sequence, at most; 0: the model's
  int page_size = 16;               ///< positions
  std::int64_t pages = 0;           ///< 0: as many as the memory holds
  double memory_utilization = 0.9;  ///< the share of the device's memory that may be in use
  bool graphs = true;               ///< record decoding steps
  bool measured = false;            ///< plan products by timing them: slower to start
  bool laws = true;                 ///< false: bits may depend on the company; for comparison
  std::int64_t max_loras = 0;       ///< adapters at once
  std::int64_t max_lora_rank = 16;  ///< of each, at most
  kernels::DType dtype = kernels::DType::bf16;     ///< of the pass: bf16, f16 or f32
  kernels::DType kv_dtype = kernels::DType::bf16;  ///< u8: fp8; else the pass's type
  KvScales kv_scales{};
};

/// Throws core::Error: unsupported for a model without kernels and for a build without CUDA, resource_exhausted.
std::unique_ptr<Runner> make_gpu_runner(std::shared_ptr<const model::WeightSet> weights,
                                        const GpuRunnerOptions& options = {});

// Say which sizes are recorded.

/// The sizes of decoding steps that are recorded: 1, 2, 4, 8, 16, 24, … up to `sequences`.
std::vector<std::int64_t> graph_sizes(std::int64_t sequences);
/// The numbers of tokens for which steps over short pieces of prompts are recorded: 16, 32, … 256, if a step may have so many.
std::vector<std::int64_t> short_sizes(std::int64_t tokens);
/// The most splits of a past that a recording allows for: 1, 4, 16, as far as sequences can be long.
std::vector<std::int64_t> graph_splits(std::int64_t positions);
/// The first of the ascending sizes that holds n; -1: none.
std::int64_t bucket_of(std::span<const std::int64_t> sizes, std::int64_t n);

}  // namespace rose::infer
