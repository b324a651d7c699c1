// Decide the order in which waiting requests are tried.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace rose::infer {

enum class AdmissionPolicy : std::uint8_t { fifo, pack, priority, shortest };
/// "fifo", "pack", "priority", "shortest"; throws core::Error (invalid_argument) otherwise.
AdmissionPolicy parse_admission_policy(std::string_view name);

/// What the order depends on.
struct Applicant {
  std::int64_t cost = 0;  ///< tokens to compute before its first answer token
  int priority = 0;
  std::int64_t passed = 0;  ///< how often a later arrival got in before it
};

/// Indices into `window`, which is in order of arrival, in the order to try. The first `overdue` of them (the result) have run out
/// of patience.
std::size_t admission_order(AdmissionPolicy policy, std::span<const Applicant> window,
                            std::int64_t patience, std::vector<std::int32_t>& order);

enum class Admission : std::uint8_t { admitted, no_room, full };  ///< full: nobody else can get in

// Try them in order, and stop where the policy says so.

/// Calls try_one(index) along the order until it says full, or until one that may not be skipped finds no room.
template <class Try>
void admit(AdmissionPolicy policy, std::span<const Applicant> window, std::int64_t patience,
           std::vector<std::int32_t>& order, const Try& try_one) {
  const std::size_t overdue = admission_order(policy, window, patience, order);
  const bool skips = policy == AdmissionPolicy::pack || policy == AdmissionPolicy::shortest;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Admission outcome = try_one(order[i]);
    if (outcome == Admission::full) return;
    if (outcome == Admission::no_room && (i < overdue || !skips)) return;
  }
}

}  // namespace rose::infer
