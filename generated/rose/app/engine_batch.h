// Answer a file of prompts.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rose/app/cli.h"
#include "rose/app/engine_options.h"
#include "rose/infer/step.h"

namespace rose::app {

/// Named as vLLM's.
struct BatchOptions {
  std::string prompts, out;
  std::string device = "auto", kv_cache_dtype = "auto", policy = "fifo";
  std::int64_t max_num_seqs = 0, max_num_batched_tokens = 0;  ///< 0: what suits the device
  int block_size = 16;
  bool calculate_kv_scales = false;  ///< of a cache of eight bits, on a text
  double gpu_memory_utilization = 0.9;
  std::string profile;             ///< a file for what took time; empty: nobody asks
  int num_speculative_tokens = 0;  ///< guesses per step, of what followed the last words before
};

void add_batch_options(CLI::App& command, BatchOptions& options);
void generate_batch(const EngineOptions& engine, const BatchOptions& batch);

/// On the device that the options name.
std::unique_ptr<infer::Runner> make_runner(const EngineOptions& engine, const BatchOptions& batch,
                                           std::shared_ptr<const model::WeightSet> weights,
                                           const text::Tokenizer& tokenizer);

/// The checkpoint's weights, packed as the options ask, in the form that the device needs.
std::shared_ptr<const model::WeightSet> load_weights(const EngineOptions& engine,
                                                     const BatchOptions& batch,
                                                     const model::Checkpoint& checkpoint);

}  // namespace rose::app
