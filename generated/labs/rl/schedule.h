// Simulate a sampler and a trainer that overlap.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace rose::labs {

// What is planned, and what is remembered of an episode.
enum class TrainingOrder : std::uint8_t { finishing, starting, oldest_finished };

struct SchedulePlan {
  int slots = 64;       ///< episodes that can run at once
  int batch = 64;       ///< episodes of one update
  int bound = 0;        ///< by how many updates sampling may run ahead; 0: synchronous
  double training = 1;  ///< time of one update
  TrainingOrder order = TrainingOrder::finishing;
  int oldest = std::numeric_limits<int>::max();  ///< episodes with more lag are not trained on
};

struct Episode {
  double length, end;
  std::int64_t index;  ///< in the order of starting
  int born;            ///< version of the weights when it started
  int lag = 0;         ///< updates between its start and its own update
};

struct Timeline {
  double time = 0, sampled = 0;  ///< sampled: slot time of all finished episodes
  std::vector<Episode> trained;  ///< in the order of training
  std::vector<Episode> discarded;
};

// Take the next update's episodes from those that have finished, if they are there.
inline std::vector<Episode> take_batch(std::vector<Episode>& finished, const SchedulePlan& plan,
                                       std::int64_t first) {
  const auto size = static_cast<std::ptrdiff_t>(plan.batch);
  if (std::ssize(finished) < size) return {};
  if (plan.order != TrainingOrder::finishing)
    std::sort(finished.begin(), finished.end(),
              [](const Episode& a, const Episode& b) { return a.index < b.index; });
  const bool complete = finished[static_cast<std::size_t>(size) - 1].index == first + size - 1;
  if (plan.order == TrainingOrder::starting && !complete) return {};  // wait for the first of all
  std::vector<Episode> batch(finished.begin(), finished.begin() + size);
  finished.erase(finished.begin(), finished.begin() + size);
  return batch;
}

// Jump from event to event.
inline Timeline simulate(const SchedulePlan& plan, int updates,
                         const std::function<double()>& draw) {
  constexpr double never = std::numeric_limits<double>::infinity();
  Timeline t;
  std::vector<Episode> running, finished;
  std::int64_t started = 0;
  double update_ends = never;
  for (int version = 0; version < updates;) {
    const auto kept = started - std::ssize(t.discarded);
    const auto free =
        std::min<std::int64_t>(plan.slots - std::ssize(running),
                               std::int64_t{plan.bound + version + 1} * plan.batch - kept);
    for (std::int64_t i = 0; i < free; ++i) {
      const double length = draw();
      running.push_back({length, t.time + length, started++, version});
    }
    if (update_ends == never) {
      std::erase_if(finished, [&](const Episode& e) {
        if (version - e.born <= plan.oldest) return false;
        t.discarded.push_back(e);
        return true;
      });
      for (Episode& e : take_batch(finished, plan, std::int64_t{version} * plan.batch)) {
        e.lag = version - e.born;
        t.trained.push_back(e);
        update_ends = t.time + plan.training;
      }
    }
    const auto next =
        std::min_element(running.begin(), running.end(),
                         [](const Episode& a, const Episode& b) { return a.end < b.end; });
    if (next == running.end() || update_ends <= next->end) {
      t.time = update_ends;
      update_ends = never;
      ++version;
    } else {
      t.time = next->end;
      t.sampled += next->length;
      finished.push_back(*next);
      running.erase(next);
    }
  }
  return t;
}

}  // namespace rose::labs
