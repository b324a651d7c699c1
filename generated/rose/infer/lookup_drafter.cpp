// Draft what followed the last tokens before.

#include "rose/infer/lookup_drafter.h"

#include <algorithm>

#include "rose/core/hash.h"

namespace rose::infer {

std::uint64_t LookupDrafter::key(std::span<const std::int32_t> tokens, std::size_t end) const {
  const auto n = static_cast<std::size_t>(least_);
  return core::xxh3(std::as_bytes(tokens.subspan(end - n, n)));
}

// The place at the very end is not indexed: it would find itself.
void LookupDrafter::index(std::span<const std::int32_t> tokens) {
  const bool grown =
      known_.size() <= tokens.size() && std::ranges::equal(known_, tokens.first(known_.size()));
  if (!grown) known_.clear(), earlier_.clear(), latest_.clear();
  known_.insert(known_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(known_.size()),
                tokens.end());
  while (earlier_.size() < tokens.size()) {  // entry e is for the tokens before e
    const std::size_t end = earlier_.size();
    earlier_.push_back(-1);
    if (end < static_cast<std::size_t>(least_)) continue;
    const auto [at, added] = latest_.try_emplace(key(tokens, end), static_cast<std::int32_t>(end));
    if (added) continue;
    earlier_.back() = at->second;
    at->second = static_cast<std::int32_t>(end);
  }
}

void LookupDrafter::draft(std::span<const std::int32_t> tokens, int most,
                          std::vector<std::int32_t>& out) {
  out.clear();
  if (tokens.size() <= static_cast<std::size_t>(least_) || most <= 0) return;
  index(tokens);
  const auto found = latest_.find(key(tokens, tokens.size()));
  if (found == latest_.end()) return;
  constexpr int most_places = 16;
  std::size_t best = 0;
  int best_length = least_ - 1;
  std::int32_t place = found->second;
  for (int i = 0; i < most_places && place >= 0;
       ++i, place = earlier_[static_cast<std::size_t>(place)]) {
    const auto end = static_cast<std::size_t>(place);
    int length = 0;
    while (length < longest_ && static_cast<std::size_t>(length) < end &&
           tokens[end - 1 - static_cast<std::size_t>(length)] ==
               tokens[tokens.size() - 1 - static_cast<std::size_t>(length)])
      ++length;
    if (length > best_length) best = end, best_length = length;
  }
  if (best == 0) return;
  const auto rest = tokens.subspan(best);
  const auto n = std::min(rest.size(), static_cast<std::size_t>(most));
  out.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(n));
}

}  // namespace rose::infer
