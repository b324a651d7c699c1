#include "diff.h"

#include <algorithm>
#include <unordered_map>

namespace tangle {
namespace {

constexpr std::int64_t most_differences = 4000;  // beyond that one hunk covers the whole middle

/// Lines as small numbers, so that comparing two is one instruction.
struct Numbered {
  std::vector<std::uint32_t> before, after;

  Numbered(const Lines& a, const Lines& b) {
    std::unordered_map<std::string_view, std::uint32_t> numbers;
    const auto number = [&](std::string_view line) {
      return numbers.try_emplace(line, static_cast<std::uint32_t>(numbers.size())).first->second;
    };
    for (const std::string_view line : a) before.push_back(number(line));
    for (const std::string_view line : b) after.push_back(number(line));
  }
};

/// Myers' greedy search over the furthest-reaching paths; `trace` keeps each step's frontier to walk back along.
class Search {
 public:
  Search(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) : a_(a), b_(b) {}

  /// The matched pairs (index in a, index in b), ascending; false when the texts are too different.
  bool run(std::vector<std::pair<std::uint32_t, std::uint32_t>>& matches) {
    const auto n = static_cast<std::int64_t>(a_.size()), m = static_cast<std::int64_t>(b_.size());
    const std::int64_t limit = std::min(n + m, most_differences);
    std::vector<std::int64_t> frontier(static_cast<std::size_t>(2 * limit + 3), 0);
    const auto at = [&](std::int64_t k) -> std::int64_t& { return frontier[static_cast<std::size_t>(k + limit + 1)]; };
    for (std::int64_t d = 0; d <= limit; ++d) {
      trace_.emplace_back();
      for (std::int64_t k = -d; k <= d; k += 2) {
        const bool down = k == -d || (k != d && at(k - 1) < at(k + 1));
        std::int64_t x = down ? at(k + 1) : at(k - 1) + 1;
        while (x < n && x - k < m && x - k >= 0 && same(x, x - k)) ++x;
        at(k) = x;
        trace_.back().push_back(x);
        if (x >= n && x - k >= m) return walk_back(d, k, matches);
      }
    }
    return false;
  }

 private:
  bool same(std::int64_t x, std::int64_t y) const {
    return a_[static_cast<std::size_t>(x)] == b_[static_cast<std::size_t>(y)];
  }

  std::int64_t reached(std::int64_t d, std::int64_t k) const {
    return trace_[static_cast<std::size_t>(d)][static_cast<std::size_t>((k + d) / 2)];
  }

  bool walk_back(std::int64_t d, std::int64_t k, std::vector<std::pair<std::uint32_t, std::uint32_t>>& matches) const {
    auto x = static_cast<std::int64_t>(a_.size());
    for (; d >= 0; --d) {
      std::int64_t from = 0;  // x after this step's insertion or deletion, before its run of equal lines
      std::int64_t previous = 0;
      if (d > 0) {
        const bool down = k == -d || (k != d && reached(d - 1, k - 1) < reached(d - 1, k + 1));
        previous = down ? k + 1 : k - 1;
        from = down ? reached(d - 1, previous) : reached(d - 1, previous) + 1;
      }
      for (; x > from; --x)
        matches.emplace_back(static_cast<std::uint32_t>(x - 1), static_cast<std::uint32_t>(x - 1 - k));
      if (d > 0) x = reached(d - 1, previous);
      k = previous;
    }
    std::reverse(matches.begin(), matches.end());
    return true;
  }

  const std::vector<std::uint32_t>& a_;
  const std::vector<std::uint32_t>& b_;
  std::vector<std::vector<std::int64_t>> trace_;
};

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
  Numbered numbered(before, after);
  auto& [a, b] = numbered;
  const auto head = static_cast<std::uint32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  std::uint32_t tail = 0;
  while (tail < std::min(a.size(), b.size()) - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const std::vector<std::uint32_t> middle_a(a.begin() + head, a.end() - tail),
      middle_b(b.begin() + head, b.end() - tail);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> matches;
  if (!Search(middle_a, middle_b).run(matches)) matches.clear();
  matches.emplace_back(static_cast<std::uint32_t>(middle_a.size()), static_cast<std::uint32_t>(middle_b.size()));
  std::vector<Hunk> hunks;
  std::uint32_t x = 0, y = 0;
  for (const auto& [i, j] : matches) {
    if (i > x || j > y) hunks.push_back({head + x, head + i, head + y, head + j});
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
  std::size_t i = 0, j = 0;
  while (i < mine.size() || j < other.size()) {
    const bool take_mine = j == other.size() || (i < mine.size() && mine[i].old_begin <= other[j].old_begin);
    const Hunk& first = take_mine ? mine[i] : other[j];
    const Lines& source = take_mine ? ours : theirs;
    const std::string text = joined(source, first.new_begin, first.new_end);
    const bool touches = i < mine.size() && j < other.size() &&
                         std::max(mine[i].old_begin, other[j].old_begin) <= std::min(mine[i].old_end, other[j].old_end);
    if (touches) {
      const Hunk& second = take_mine ? other[j] : mine[i];
      const bool same = first.old_begin == second.old_begin && first.old_end == second.old_end &&
                        text == joined(take_mine ? theirs : ours, second.new_begin, second.new_end);
      if (!same) {
        conflict = first.old_begin;
        return false;
      }
      ++i;
      ++j;
    } else {
      ++(take_mine ? i : j);
    }
    merged += joined(ancestor, at, first.old_begin);
    merged += text;
    at = first.old_end;
  }
  merged += joined(ancestor, at, static_cast<std::uint32_t>(ancestor.size()));
  return true;
}

}  // namespace tangle
