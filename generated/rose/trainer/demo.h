// Train a small model on the book while you watch.

#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "rose/core/parallel.h"
#include "rose/model/files/config.h"
#include "rose/trainer/trainer.h"

namespace rose::trainer {

struct DemoOptions {
  std::filesystem::path text = "book";  ///< a file, or a folder of .md files
  std::int64_t steps = 0;               ///< 0: the default, 800
  std::uint64_t seed = 1;
  std::filesystem::path log{};  ///< the loss of every step as JSON lines; empty: no file
  bool quiet = false;           ///< print nothing
};

struct DemoResult {
  double first_loss = 0.0,
         last_loss = 0.0;      ///< nats per token; the last is the mean of the last 20 steps
  double held_out_loss = 0.0;  ///< on text that was not trained on
  double bytes_per_token = 0.0, seconds = 0.0;  ///< of the training alone
  std::int64_t tokens = 0, parameters = 0;
  std::string before, after;  ///< samples
};

/// The model and the recipe of the demonstration.
model::Config demo_config(std::int64_t vocab_size);
TrainerOptions demo_trainer_options(std::int64_t steps, std::uint64_t seed);

/// Reads the text, learns a vocabulary, trains, samples before and after. Samples and summary go to
/// `out`, progress to standard error. Everything but the times is a function of text, steps and seed.
DemoResult run_demo(const DemoOptions& options, std::FILE* out = stdout,
                    core::ThreadPool& pool = core::default_pool());

}  // namespace rose::trainer
