// Keep what a model would have said itself.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "rose/core/rng.h"
#include "rose/infer/drafter.h"
#include "rose/kernels/sampling.h"

namespace rose::infer {

// Verify drafts by rejection.

/// The outcome for k drafts: those kept, then one more token.
struct Verified {
  std::size_t kept = 0;
  std::int32_t next = -1;
};

/// target: the model's distribution at each of the k + 1 places; draft: the drafter's at the first
/// k, from which the drafts were drawn. The kept tokens and `next` have the model's joint
/// distribution.
Verified verify_by_rejection(std::span<const std::int32_t> drafts,
                             std::span<const std::vector<double>> target,
                             std::span<const std::vector<double>> draft, core::Rng& rng);

// Keep drafts while they are what was drawn.

/// drawn [k + 1]: the model's own choice at each place, given the drafts before it. The text goes on
/// with drawn[0], ..., drawn[n], n the number given back: that many drafts were kept.
std::size_t agreeing(std::span<const std::int32_t> drafts, std::span<const std::int32_t> drawn);

/// How often drafter and model draw the same token with the same noise.
double agreement(std::span<const double> p, std::span<const double> q);

// Draft with a smaller model and the same noise.
class ModelDrafter : public Drafter {
 public:
  /// next(tokens) gives the small model's logits for the token after `tokens`.
  using Next = std::function<std::span<const float>(std::span<const std::int32_t> tokens)>;
  /// params: the request's, with its seed; the position is filled in.
  ModelDrafter(Next next, const kernels::SamplingParams& params)
      : next_(std::move(next)), params_(params) {}

  void draft(std::span<const std::int32_t> tokens, int most,
             std::vector<std::int32_t>& out) override;

 private:
  Next next_;
  kernels::SamplingParams params_;
  std::vector<std::int32_t> text_;
  std::vector<std::pair<float, std::int32_t>> scratch_;
};

// Count what was kept, and choose how many to draft.

/// E(k): tokens that a pass gives when each of k drafts is kept with probability alpha.
double tokens_per_pass(double alpha, int drafts);

/// The number of drafts, at most `most`, that makes tokens come fastest, when a further row costs
/// `row` and a draft `draft` of the time of a pass over one row. 0: do not draft.
int best_drafts(double alpha, double row, double draft, int most);

/// What a request's drafts came to.
struct Acceptance {
  std::int64_t passes = 0, drafted = 0, kept = 0;
  double recent = 0.5;  ///< alpha, as an average in which old passes fade

  void add(std::size_t drafts, std::size_t kept_drafts);
  double rate() const;             ///< of all drafts, those kept
  double tokens_per_pass() const;  ///< with the one more of each pass
};

}  // namespace rose::infer
