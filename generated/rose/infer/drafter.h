// Guess what comes next.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/infer/sampling.h"

namespace rose::infer {

/// A text to go on with.
struct DraftTask {
  std::uint64_t key = 0;               ///< the same for one text as it grows
  std::span<const std::int32_t> text;  ///< prompt and answer so far
  int most = 0;
  RequestSampler* sampler = nullptr;  ///< how its tokens are chosen; null: the likeliest
  std::vector<std::int32_t>* out = nullptr;
};

/// Guesses the continuation of texts. A wrong guess costs time and changes nothing. Called between steps.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Replaces `out` by at most `most` tokens that may follow `text`, prompt and answer so far.
  virtual void draft(std::span<const std::int32_t> text, int most,
                     std::vector<std::int32_t>& out) = 0;
  /// The same for all texts of a step, which a drafter may look at together.
  virtual void draft_all(std::span<const DraftTask> tasks) {
    for (const DraftTask& task : tasks) draft(task.text, task.most, *task.out);
  }
  virtual void forget(std::uint64_t /*key*/) {}  ///< the text is over
};

}  // namespace rose::infer
