// Compare what two models expect, token by token.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "rose/core/parallel.h"
#include "rose/infer/memory_plan.h"
#include "rose/model/weights.h"

namespace rose::infer {

/// A model as it is run: its weights, and what its cache keeps.
struct Variant {
  const model::WeightSet* weights = nullptr;
  kernels::DType kv_dtype = kernels::DType::f32;
  KvScales kv_scales{};
};

struct Divergence {
  std::int64_t tokens = 0;                     ///< that were predicted
  double base_perplexity = 0, perplexity = 0;  ///< of the text
  double mean_kl = 0, max_kl = 0;              ///< nats, from the base to the variant
  double max_logit = 0;                        ///< largest difference, rows centred
  double same_choice = 0;                      ///< share of places with the same most likely token

  std::string describe() const;  ///< a line for people
};

/// Reads the ids in windows of so many tokens, each without a past. On the CPU. Throws core::Error (invalid_argument) for fewer than two
/// ids and for models of different vocabularies.
Divergence diverge(const Variant& base, const Variant& other, std::span<const std::int32_t> ids,
                   std::int64_t window = 512, core::ThreadPool& pool = core::default_pool());

/// Scales under which the largest key and value of each head, in the text, are a quarter of the largest e4m3 number.
KvScales measure_kv_scales(const model::WeightSet& weights, std::span<const std::int32_t> ids,
                           core::ThreadPool& pool = core::default_pool());

}  // namespace rose::infer
