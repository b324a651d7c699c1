#include "diff.h"

#include <algorithm>
#include <span>
#include <unordered_map>

namespace tangle {
namespace {

constexpr int most_differences = 4000;  // beyond that one hunk covers the whole middle

using Numbers = std::vector<std::uint32_t>;

/// Lines as small numbers, so that comparing two is one instruction.
Numbers numbered(const Lines& lines, std::unordered_map<std::string_view, std::uint32_t>& known) {
  Numbers out;
  for (const std::string_view line : lines) {
    out.push_back(known.try_emplace(line, static_cast<std::uint32_t>(known.size())).first->second);
  }
  return out;
}

/// Myers' greedy search over the furthest-reaching paths. Returns the pairs of equal lines (index in a, index in b),
/// ascending; none when the texts are too different.
std::vector<std::pair<int, int>> matches(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  std::vector<std::vector<int>>
      reached;  // after d differences, the furthest x on diagonals k = x - y = -d, -d + 2, …, d
  const auto furthest = [&](int d, int k) {
    return reached[static_cast<std::size_t>(d)][static_cast<std::size_t>((k + d) / 2)];
  };
  const auto equal = [&](int x, int y) { return a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(y)]; };
  // Where difference d enters diagonal k, and the diagonal it comes from: by an insertion (down) or a deletion.
  const auto entry = [&](int d, int k) {
    if (d == 0) return std::pair(0, 0);
    const bool down = k == -d || (k != d && furthest(d - 1, k - 1) < furthest(d - 1, k + 1));
    return down ? std::pair(furthest(d - 1, k + 1), k + 1) : std::pair(furthest(d - 1, k - 1) + 1, k - 1);
  };
  const auto walk_back = [&](int d, int k) {
    std::vector<std::pair<int, int>> out;
    for (int x = n; d >= 0; --d) {
      const auto [from, previous] = entry(d, k);
      for (; x > from; --x) out.emplace_back(x - 1, x - 1 - k);
      if (d > 0) x = furthest(d - 1, previous);
      k = previous;
    }
    std::ranges::reverse(out);
    return out;
  };
  for (int d = 0; d <= std::min(n + m, most_differences); ++d) {
    std::vector<int>& row = reached.emplace_back();
    for (int k = -d; k <= d; k += 2) {
      int x = entry(d, k).first;
      while (x < n && x - k < m && x - k >= 0 && equal(x, x - k)) ++x;
      row.push_back(x);
      if (x >= n && x - k >= m) return walk_back(d, k);
    }
  }
  return {};
}

/// The text of lines [begin, end).
std::string joined(const Lines& lines, std::uint32_t begin, std::uint32_t end) {
  std::string out;
  for (std::uint32_t i = begin; i < end; ++i) out += lines[i];
  return out;
}

}  // namespace

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

std::vector<Hunk> diff(const Lines& before, const Lines& after) {
  std::unordered_map<std::string_view, std::uint32_t> known;
  const Numbers a = numbered(before, known), b = numbered(after, known);
  const auto head = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  std::size_t tail = 0;
  while (tail < std::min(a.size(), b.size()) - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const auto middle = [&](const Numbers& all) { return std::span(all).subspan(head, all.size() - head - tail); };
  auto pairs = matches(middle(a), middle(b));
  pairs.emplace_back(static_cast<int>(middle(a).size()), static_cast<int>(middle(b).size()));
  std::vector<Hunk> hunks;
  int x = 0, y = 0;
  for (const auto& [i, j] : pairs) {
    const auto line = [&](int offset) { return static_cast<std::uint32_t>(head) + static_cast<std::uint32_t>(offset); };
    if (i > x || j > y) hunks.push_back({line(x), line(i), line(y), line(j)});
    x = i + 1;
    y = j + 1;
  }
  return hunks;
}

bool merge(const Lines& ancestor, const Lines& ours, const Lines& theirs, std::string& merged,
           std::uint32_t& conflict) {
  const std::vector<Hunk> mine = diff(ancestor, ours), other = diff(ancestor, theirs);
  merged.clear();
  std::uint32_t at = 0;
  for (auto i = mine.begin(), j = other.begin(); i != mine.end() || j != other.end();) {
    const bool both = i != mine.end() && j != other.end();
    const bool touches = both && std::max(i->old_begin, j->old_begin) <= std::min(i->old_end, j->old_end);
    const bool take_mine = j == other.end() || (both && i->old_begin <= j->old_begin);
    const Hunk hunk = take_mine ? *i : *j;
    const std::string text = joined(take_mine ? ours : theirs, hunk.new_begin, hunk.new_end);
    if (touches) {
      const bool same = i->old_begin == j->old_begin && i->old_end == j->old_end &&
                        joined(ours, i->new_begin, i->new_end) == joined(theirs, j->new_begin, j->new_end);
      conflict = hunk.old_begin;
      if (!same) return false;
    }
    if (touches || take_mine) ++i;
    if (touches || !take_mine) ++j;
    merged += joined(ancestor, at, hunk.old_begin) + text;
    at = hunk.old_end;
  }
  merged += joined(ancestor, at, static_cast<std::uint32_t>(ancestor.size()));
  return true;
}

}  // namespace tangle
