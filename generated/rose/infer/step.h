// Say what one step computes, and who computes it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "rose/infer/memory_plan.h"
#include "rose/infer/sampling.h"
#include "rose/kernels/kv_cache.h"

namespace rose::model {
class WeightSet;
struct Adapter;
}  // namespace rose::model

namespace rose::infer {

struct ProfileSpan;

/// T tokens in S rows, R of them followed by a choice.
struct StepInput {
  std::span<const std::int32_t>
      ids;  ///< [T]; -(r + 1): what logit row r of the launch before chose
  std::span<const std::int32_t> positions;    ///< [T], absolute, consecutive within a row
  std::span<const std::int32_t> row_offsets;  ///< [S + 1]
  std::span<const std::int32_t>
      page_table;  ///< [S, table_stride]; 0 (scratch) past a row's last page
  std::int64_t table_stride = 0;
  std::span<const kernels::KvPageCopy> copies;  ///< made first; no page is source and target
  std::span<const std::int32_t> logit_tokens;   ///< [R], packed indices, ascending, may repeat
  std::span<const RowSampling> sampling;        ///< [R]
  std::span<const std::int32_t>
      adapters{};  ///< [S], ascending: slots of adapters, -1 for none; empty: none at all
  std::span<const std::int32_t>
      hidden_tokens{};        ///< [H], packed indices, ascending: whose hidden states are wanted
  bool choose_later = false;  ///< what stands in `sampling` is not final: choose() will follow
};

/// What was chosen, row by row of logit_tokens.
struct StepOutput {
  std::span<const std::int32_t> tokens;   ///< [R]; -1: there was no number to choose by (NaN)
  std::span<const float> logprobs{};      ///< [R], where asked for
  std::span<const std::int32_t> top_ids;  ///< [R, top_stride]
  std::span<const float> top_logprobs;    ///< [R, top_stride]
  std::int64_t top_stride = 0;            ///< the most alternatives that a row of this step wants
  std::span<const float> hidden{};        ///< [H, C], after the final norm
};

// Compute steps.

/// The most that one step may hold, and the room for keys and values.
struct RunnerLimits {
  std::int64_t tokens = 0, sequences = 0, rows = 0;  ///< T, S, R at most
  int page_size = 16;
  std::int64_t pages = 0;      ///< page 0 is scratch: never read, written by padding
  std::int64_t positions = 0;  ///< the longest sequence
  std::int64_t vocab = 0;
  bool asynchronous = false;  ///< launch returns before the work is done: overlapping is worth it
  std::int64_t hidden = 0;    ///< C, numbers of a hidden state
  std::int64_t adapters = 0, adapter_rank = 0;  ///< slots, and the most that one may have
  std::uint64_t kv_key = 0;   ///< what a page's bytes mean: see kv_key(); 0: its size says enough
  bool late_choices = false;  ///< whether a step may be launched before it is said how to choose
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual const RunnerLimits& limits() const = 0;
  virtual const MemoryPlan& memory() const = 0;
  virtual std::string_view name() const = 0;  ///< device and kernels, for reports

  virtual void launch(const StepInput& step) = 0;  ///< at most two launches may be waited for
  /// After a launch with choose_later, and before anything else but wait() for the launch before it: all of its rows, with the
  /// parameters that the launch was given and with their adjustments. Only where late_choices.
  virtual void choose(std::span<const RowSampling> /*sampling*/) {}
  virtual StepOutput
  wait() = 0;  ///< of the oldest launch; valid until the second launch after this

  virtual std::shared_ptr<const model::WeightSet> weights() const = 0;
  /// Nothing may be in flight, and the shapes must be the same.
  virtual void set_weights(std::shared_ptr<const model::WeightSet> weights) = 0;
  /// Returns the adapter's hash; null empties the slot. Throws core::Error for an adapter of another model, and for too great a rank.
  /// Nothing may be in flight.
  virtual std::uint64_t set_adapter(std::int64_t slot,
                                    std::shared_ptr<const model::Adapter> adapter) = 0;
  /// Whole pages as bytes, for moving a cache: each [keys | values, layers, kv_heads, page_size, head_dim].
  virtual void read_pages(std::span<const std::int32_t> pages, std::span<std::byte> out) const = 0;
  virtual void write_pages(std::span<const std::int32_t> pages, std::span<const std::byte> in) = 0;
  /// Notes what a device does from now on; then appends it. A runner without a device of its own has nothing to say.
  virtual void start_profile() {}
  virtual void stop_profile(std::vector<ProfileSpan>& /*spans*/) {}

  /// One layer of one page, keys and then values, while steps that do not touch the page may run. Only a runner that can tell its
  /// layers can do that.
  virtual void read_block(std::int32_t, int, std::span<std::byte>) const {}
  virtual void write_block(std::int32_t, int, std::span<const std::byte>) {}
  /// From now on calls `told` within a launch whenever a layer's keys and values are written. False: it cannot.
  virtual bool tell_layers(const std::function<void(int layer)>& /*told*/) { return false; }
};

}  // namespace rose::infer
