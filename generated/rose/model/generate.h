// Continue a prompt, token by token.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/model/forward.h"
#include "rose/model/kv_cache.h"
#include "rose/model/sample.h"

namespace rose::model {

/// Why a generation ended: a stop id, max_tokens, a full cache, or the callback said so.
enum class Finish { stop, length, context, cancelled };

/// How one answer is to be made.
struct GenerateOptions {
  std::int64_t max_tokens = 256;
  Sampling sampling{};
  std::vector<std::int32_t> stop_ids{};  ///< empty: the model's eos_ids
  bool ignore_stop = false;              ///< run to max_tokens
};

/// An answer, and what it cost.
struct Generation {
  std::vector<std::int32_t> ids;  ///< without the stop id
  Finish finish = Finish::length;
  std::int64_t prompt_tokens = 0,
               reused_tokens = 0;  ///< reused: found in the cache from an earlier call
  double prefill_seconds = 0.0, decode_seconds = 0.0;
};

/// One conversation with one model: owns the KV cache and the buffers.
class Generator {
 public:
  /// context: positions the cache holds; 0 takes the model's maximum, capped at 8192 to bound memory.
  explicit Generator(std::shared_ptr<const WeightSet> weights, std::int64_t context = 0,
                     core::ThreadPool& pool = core::default_pool());

  /// Continue prompt [P]. on_token is called with each new id as soon as it is known; returning false stops.
  /// The longest prefix shared with what the cache already holds is not computed again (the bits are the same).
  /// Throws core::Error (invalid_argument) for an empty prompt, one longer than the context, or an unknown id.
  Generation generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                      const std::function<bool(std::int32_t)>& on_token = {});

  void reset() { cached_.clear(); }  ///< forget what the cache holds
  /// From now on with an adapter; null: the model as it is.
  void adapt(std::shared_ptr<const Adapter> adapter) { adapter_ = std::move(adapter), reset(); }
  std::int64_t context() const { return cache_.capacity(); }
  const WeightSet& weights() const { return *weights_; }

 private:
  std::span<const float> advance(
      std::span<const std::int32_t> ids);  ///< logits after the last of ids

  std::shared_ptr<const WeightSet> weights_;
  std::shared_ptr<const Adapter>
      adapter_;  ///< small matrices beside the weights, of a later chapter
  KvCache cache_;
  Workspace workspace_;
  Sampler sampler_;
  std::vector<std::int32_t> cached_;     ///< ids whose keys and values the cache holds
  std::vector<std::int32_t> positions_;  ///< 0, 1, ..., context - 1
  std::vector<float> hidden_, logits_;
};

}  // namespace rose::model
