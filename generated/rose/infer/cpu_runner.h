// Compute steps on the CPU.

#pragma once

#include <memory>

#include "rose/core/parallel.h"
#include "rose/infer/step.h"
#include "rose/model/weights.h"

namespace rose::infer {

struct CpuRunnerOptions {
  std::int64_t max_tokens = 512;    ///< of a step
  std::int64_t max_sequences = 64;  ///< of a step; as many rows of logits
  std::int64_t positions = 0;       ///< the longest sequence; 0: what the model allows
  int page_size = 16;
  kernels::DType kv_dtype = kernels::DType::f32;  ///< f32, f16, bf16, or u8: fp8
  KvScales kv_scales{};
  std::int64_t pages = 0;       ///< usable ones; 0: for max_sequences of full length, or what fits
  std::int64_t budget = 0;      ///< bytes in all; 0: half of the machine's memory
  std::int64_t max_loras = 64;  ///< adapters at once; of any rank
  bool poison = false;  ///< fill the pages with NaN, to see that none is read before it is written
};

std::unique_ptr<Runner> make_cpu_runner(std::shared_ptr<const model::WeightSet> weights,
                                        const CpuRunnerOptions& options = {},
                                        core::ThreadPool& pool = core::default_pool());

}  // namespace rose::infer
