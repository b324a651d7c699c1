// Decide the order in which waiting requests are tried.

#include "rose/infer/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "rose/core/error.h"
#include "rose/infer/request.h"

namespace rose::infer {

std::string_view name(Finish finish) {
  constexpr std::array<std::string_view, 4> names{"stop", "length", "cancelled", "error"};
  return names.at(static_cast<std::size_t>(finish));
}

AdmissionPolicy parse_admission_policy(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, AdmissionPolicy>, 4> known{
      {{"fifo", AdmissionPolicy::fifo},
       {"pack", AdmissionPolicy::pack},
       {"priority", AdmissionPolicy::priority},
       {"shortest", AdmissionPolicy::shortest}}};
  for (const auto& [word, policy] : known)
    if (word == name) return policy;
  throw core::Error(core::Code::invalid_argument, fmt::format("'{}' is not a policy", name))
      .in("scheduling-policy")
      .hint("fifo, pack, priority or shortest");
}

std::size_t admission_order(AdmissionPolicy policy, std::span<const Applicant> window,
                            std::int64_t patience, std::vector<std::int32_t>& order) {
  order.resize(window.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int32_t i) -> const Applicant& {
    return window[static_cast<std::size_t>(i)];
  };
  const auto rest = std::stable_partition(order.begin(), order.end(),
                                          [&](std::int32_t i) { return at(i).passed >= patience; });
  const auto overdue = static_cast<std::size_t>(rest - order.begin());
  if (policy == AdmissionPolicy::priority) {
    std::stable_sort(rest, order.end(),
                     [&](auto a, auto b) { return at(a).priority > at(b).priority; });
  } else if (policy == AdmissionPolicy::shortest) {
    std::stable_sort(rest, order.end(), [&](auto a, auto b) { return at(a).cost < at(b).cost; });
  }
  return overdue;
}

}  // namespace rose::infer
