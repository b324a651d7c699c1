// Answer a file of prompts.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rose/app/cli.h"
#include "rose/app/engine_options.h"
#include "rose/infer/engine.h"
#include "rose/infer/step.h"

namespace rose::app {

/// Who guesses, and how much. Named as vLLM's.
struct Speculation {
  std::string
      model;  ///< a smaller model of the same vocabulary; ngram or empty: looked up in the text
  std::string config;           ///< the same as a JSON object
  int tokens = -1;              ///< guesses per step; 0: none; -1: none, or 4 with a model
  int least = 2, longest = 16;  ///< words in common that are looked up
};

/// Named as vLLM's.
struct BatchOptions {
  std::string prompts, out;
  std::string device = "auto", dtype = "auto", kv_cache_dtype = "auto", policy = "fifo";
  std::int64_t max_num_seqs = 0, max_num_batched_tokens = 0;  ///< 0: what suits the device
  int block_size = 16;
  bool calculate_kv_scales = false;  ///< of a cache of eight bits, on a text
  double gpu_memory_utilization = 0.9;
  std::string profile;  ///< a file for what took time; empty: nobody asks
  Speculation speculation;
};

void add_batch_options(CLI::App& command, BatchOptions& options);
void generate_batch(const EngineOptions& engine, const BatchOptions& batch);
/// Answers one prompt through an engine, and prints it as it comes.
void generate_one(const EngineOptions& engine, const BatchOptions& batch, std::string_view prompt);

/// What the options say in all. Throws core::Error for a configuration that cannot be read.
Speculation read_speculation(const BatchOptions& batch);
/// Adds whoever guesses; call it before the large model's runner takes the memory.
void add_drafter(const EngineOptions& engine, const BatchOptions& batch,
                 const model::Config& config, infer::EngineOptions& options);

/// On the device that the options name.
std::unique_ptr<infer::Runner> make_runner(const EngineOptions& engine, const BatchOptions& batch,
                                           std::shared_ptr<const model::WeightSet> weights,
                                           const text::Tokenizer& tokenizer);

/// The checkpoint's weights, packed as the options ask, in the form that the device needs.
std::shared_ptr<const model::WeightSet> load_weights(const EngineOptions& engine,
                                                     const BatchOptions& batch,
                                                     const model::Checkpoint& checkpoint);

}  // namespace rose::app
