// Draft what followed the last tokens before.

#include "rose/infer/lookup_drafter.h"

#include <algorithm>
#include <iterator>

namespace rose::infer {

void LookupDrafter::draft(std::span<const std::int32_t> text, int most,
                          std::vector<std::int32_t>& out) {
  out.clear();
  if (text.empty() || most <= 0) return;
  const std::size_t first = text.size() - std::min(text.size(), static_cast<std::size_t>(window_));
  std::size_t best = 0;
  std::ptrdiff_t best_length = least_ - 1;
  for (std::size_t end = text.size() - 1; end > first && best_length < longest_; --end) {
    if (text[end - 1] != text.back()) continue;
    const auto before = text.first(end);  // an earlier place that ends as the text does
    const auto same = std::mismatch(before.rbegin(), before.rend(), text.rbegin()).first;
    const std::ptrdiff_t length = std::distance(before.rbegin(), same);
    if (length > best_length) best = end, best_length = length;
  }
  if (best == 0) return;
  const auto rest = text.subspan(best);
  out.assign(rest.begin(), rest.begin() + std::min<std::ptrdiff_t>(most, std::ssize(rest)));
}

}  // namespace rose::infer
