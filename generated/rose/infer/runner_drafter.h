// Draft with a runner of a smaller model.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "rose/infer/drafter.h"
#include "rose/infer/step.h"

namespace rose::infer {

class RunnerDrafter : public Drafter {
 public:
  /// Throws core::Error (invalid_argument) unless the runner's model has `vocab` tokens, the large model's.
  RunnerDrafter(std::unique_ptr<Runner> runner, std::int64_t vocab);

  void draft(std::span<const std::int32_t> text, int most, std::vector<std::int32_t>& out) override;
  void draft_all(std::span<const DraftTask> tasks) override;
  void forget(std::uint64_t key) override;
  const Runner& runner() const { return *runner_; }
  std::int64_t tokens_computed() const { return computed_; }

 private:
  struct Text {
    std::vector<std::int32_t> written, pages;  ///< tokens whose keys the pages hold
    std::uint64_t used = 0;
  };
  struct Work {
    const DraftTask* task;
    Text* text;
    int most;
    std::int32_t taken = 0;  ///< tokens in the step
    bool chooses = false;
  };
  bool make_room(Text& text, std::size_t pages);
  void draft_some(std::span<const DraftTask> tasks);
  void add_row(Work& work);
  void step(std::vector<Work>& work);

  std::unique_ptr<Runner> runner_;
  std::unordered_map<std::uint64_t, Text> texts_;
  std::vector<std::int32_t> free_;
  std::uint64_t clock_ = 0;
  std::int64_t computed_ = 0;
  std::vector<std::int32_t> ids_, positions_, offsets_, table_, logit_tokens_;  // of the step
  std::vector<RowSampling> sampling_;
};

}  // namespace rose::infer
