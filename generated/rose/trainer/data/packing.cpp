// Put each piece where least room is left over.

#include "rose/trainer/data/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "rose/core/error.h"

namespace rose::trainer {

std::vector<std::vector<std::int64_t>> pack_best_fit(std::span<const std::int64_t> lengths,
                                                     std::int64_t capacity) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
  std::ranges::stable_sort(order, [&](auto a, auto b) { return length(a) > length(b); });
  std::vector<std::vector<std::int64_t>> rows;
  std::set<std::pair<std::int64_t, std::size_t>> room;  // left over, row
  for (const std::int64_t i : order) {
    if (length(i) < 1 || length(i) > capacity) {
      throw core::Error(core::Code::invalid_argument,
                        fmt::format("a piece of {} for rows of {}", length(i), capacity));
    }
    auto fit = room.lower_bound({length(i), 0});
    if (fit == room.end()) {
      fit = room.insert({capacity, rows.size()}).first;
      rows.emplace_back();
    }
    const auto [left, row] = *fit;
    room.erase(fit);
    rows[row].push_back(i);
    room.insert({left - length(i), row});
  }
  return rows;
}

}  // namespace rose::trainer
