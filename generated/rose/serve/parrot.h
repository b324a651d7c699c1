// A model that repeats, to test what is around it.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "rose/infer/step.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {

struct ParrotOptions {
  std::int64_t tokens = 4096, sequences = 256, positions = 8192, pages = 8192;
  int page_size = 16;
  std::chrono::microseconds step{0};  ///< a step takes at least so long
};

/// `weights` are asked for their configuration and version alone.
std::unique_ptr<infer::Runner> make_parrot(const text::Tokenizer& tokenizer,
                                           std::shared_ptr<const model::WeightSet> weights,
                                           const ParrotOptions& options = {});

}  // namespace rose::serve
