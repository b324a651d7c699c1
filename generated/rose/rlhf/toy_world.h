// Four doors, four signs.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rose::rlhf {

/// The vocabulary of the toy. Colours and doors are four tokens each.
namespace toy {
constexpr std::int32_t pad = 0, begin = 1, look = 2, open = 3, colour = 4, door = 8, nothing = 12,
                       right = 13, wrong = 14, vocabulary = 16;
}  // namespace toy

/// One task: a colour, and the door behind which the prize is.
class ToyWorld {
 public:
  /// The task is a function of the seed alone.
  explicit ToyWorld(std::uint64_t task_seed);

  std::vector<std::int32_t> reset() const { return {toy::begin, toy::colour + colour_}; }
  /// What the next token of an action may be: a verb, then what goes with it.
  static std::span<const std::int32_t> allowed(std::span<const std::int32_t> action_so_far);

  /// What an action led to.
  struct Outcome {
    std::int32_t observation = toy::nothing;
    bool over = false;
    double reward = 0;
  };
  Outcome step(std::int32_t verb, std::int32_t argument) const;

 private:
  std::int32_t colour_, door_;
};

}  // namespace rose::rlhf
