// Signs and verdict.

#include "rose/rlhf/toy_world.h"

#include <array>

#include "rose/core/rng.h"

namespace rose::rlhf {

ToyWorld::ToyWorld(std::uint64_t task_seed) {
  core::Rng rng(task_seed, 77);
  colour_ = static_cast<std::int32_t>(rng.below(4));
  door_ = static_cast<std::int32_t>(rng.below(4));
}

std::span<const std::int32_t> ToyWorld::allowed(std::span<const std::int32_t> action_so_far) {
  static constexpr std::array<std::int32_t, 2> verbs = {toy::look, toy::open};
  static constexpr std::array<std::int32_t, 4> colours = {4, 5, 6, 7}, doors = {8, 9, 10, 11};
  if (action_so_far.empty()) return verbs;
  return action_so_far[0] == toy::look ? std::span<const std::int32_t>(colours) : doors;
}

ToyWorld::Outcome ToyWorld::step(std::int32_t verb, std::int32_t argument) const {
  if (verb == toy::look) {
    const bool this_one = argument == toy::colour + colour_;
    return {this_one ? toy::door + door_ : toy::nothing, false, 0};
  }
  const bool found = argument == toy::door + door_;
  return {found ? toy::right : toy::wrong, true, found ? 1.0 : 0.0};
}

}  // namespace rose::rlhf
