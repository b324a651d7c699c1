#include <algorithm>
#include <functional>

#include "html.h"
#include "labels.h"
#include "pages.h"

namespace weave {
namespace {

std::vector<std::uint32_t> prerequisites(const Book& book, const Chapter& chapter) {
  std::vector<std::uint32_t> found;
  for (const json::value& each : list(chapter.front, "prerequisites")) {
    if (!each.is_string()) continue;
    const auto at = book.chapter_by_name.find(view(each.get_string()));
    if (at != book.chapter_by_name.end()) found.push_back(at->second);
  }
  return found;
}

/// Depth of every chapter: one more than the deepest of its prerequisites.
std::vector<int> depths(const Book& book) {
  std::vector<int> depth(book.chapters.size(), -1);
  const std::function<int(std::uint32_t)> of = [&](std::uint32_t c) {
    if (depth[c] >= 0) return depth[c];
    depth[c] = 0;
    int deepest = 0;
    for (const std::uint32_t before : prerequisites(book, book.chapters[c]))
      deepest = std::max(deepest, of(before) + 1);
    return depth[c] = deepest;
  };
  for (std::uint32_t c = 0; c < book.chapters.size(); ++c) of(c);
  return depth;
}

}  // namespace

void check_prerequisites(const Book& book, tangle::Diagnostics& diagnostics) {
  enum class Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(book.chapters.size(), Mark::fresh);
  const std::function<void(std::uint32_t)> visit = [&](std::uint32_t c) {
    marks[c] = Mark::open;
    for (const std::uint32_t before : prerequisites(book, book.chapters[c])) {
      if (marks[before] == Mark::open)
        diagnostics.error("prerequisite-cycle", find_in(book.chapters[c], book.chapters[before].name),
                          "'" + book.chapters[c].name + "' and '" + book.chapters[before].name +
                              "' are prerequisites of each other, directly or through others");
      else if (marks[before] == Mark::fresh) visit(before);
    }
    marks[c] = Mark::done;
  };
  for (std::uint32_t c = 0; c < book.chapters.size(); ++c)
    if (marks[c] == Mark::fresh) visit(c);
}

std::string roadmap_graph(const Book& book, std::string_view page) {
  const std::vector<int> depth = depths(book);
  std::vector<std::vector<std::uint32_t>> rows;
  for (std::uint32_t c = 0; c < book.chapters.size(); ++c) {
    const auto at = static_cast<std::size_t>(depth[c]);
    if (rows.size() <= at) rows.resize(at + 1);
    rows[at].push_back(c);
  }
  constexpr int width = 158, height = 56, gap_x = 16, gap_y = 44, line_gap = 14;
  constexpr std::size_t most = 6;  // side by side; a longer row goes on below itself
  const int total = static_cast<int>(most) * (width + gap_x) + gap_x;
  std::vector<std::pair<int, int>> corner(book.chapters.size());
  int y = 8;
  for (auto& row : rows) {
    // Each near the middle of what it builds on, so that few arrows cross.
    const auto middle = [&](std::uint32_t c) {
      const std::vector<std::uint32_t> before = prerequisites(book, book.chapters[c]);
      int sum = 0;
      for (const std::uint32_t each : before) sum += corner[each].first;
      return before.empty() ? 0 : sum / static_cast<int>(before.size());
    };
    std::stable_sort(row.begin(), row.end(), [&](std::uint32_t a, std::uint32_t b) { return middle(a) < middle(b); });
    for (std::size_t first = 0; first < row.size(); first += most) {
      const std::size_t here = std::min(most, row.size() - first);
      const int used = static_cast<int>(here) * (width + gap_x) - gap_x;
      for (std::size_t i = 0; i < here; ++i)
        corner[row[first + i]] = {(total - used) / 2 + static_cast<int>(i) * (width + gap_x), y};
      y += height + (first + most < row.size() ? line_gap : gap_y);
    }
  }
  const int bottom = y;
  std::string out =
      "<div class=\"table roadmap\" role=\"region\" tabindex=\"0\" aria-label=\"Graph of chapters; the same as a list "
      "follows\"><svg viewBox=\"0 0 " +
      std::to_string(total) + " " + std::to_string(bottom) + "\" width=\"" + std::to_string(total) + "\" height=\"" +
      std::to_string(bottom) + "\">";
  const auto reaches = [&](auto&& self, std::uint32_t c, std::uint32_t goal) -> bool {
    const std::vector<std::uint32_t> before = prerequisites(book, book.chapters[c]);
    return std::ranges::any_of(before, [&](std::uint32_t each) {
      return each == goal || (depth[each] > depth[goal] && self(self, each, goal));
    });
  };
  for (std::uint32_t c = 0; c < book.chapters.size(); ++c) {
    const std::vector<std::uint32_t> all = prerequisites(book, book.chapters[c]);
    for (const std::uint32_t before : all) {
      // What follows from other arrows needs none of its own.
      if (std::ranges::any_of(all,
                              [&](std::uint32_t each) { return each != before && reaches(reaches, each, before); }))
        continue;
      const int x1 = corner[before].first + width / 2, y1 = corner[before].second + height;
      const int x2 = corner[c].first + width / 2, y2 = corner[c].second;
      const std::string middle = std::to_string((y1 + y2) / 2);
      out += "<path d=\"M" + std::to_string(x1) + " " + std::to_string(y1) + "C" + std::to_string(x1) + " " + middle +
             " " + std::to_string(x2) + " " + middle + " " + std::to_string(x2) + " " + std::to_string(y2) + "\"/>";
    }
  }
  for (std::uint32_t c = 0; c < book.chapters.size(); ++c) {
    const Chapter& chapter = book.chapters[c];
    out += "<foreignObject x=\"" + std::to_string(corner[c].first) + "\" y=\"" + std::to_string(corner[c].second) +
           "\" width=\"" + std::to_string(width) + "\" height=\"" + std::to_string(height) +
           "\"><a class=\"node\" data-chapter=\"" + chapter.name + "\" href=\"" + relative(page, chapter.page()) +
           "\"><small>" + chapter.number + "</small> " + escaped(chapter.title.substr(0, chapter.title.find(": "))) +
           "</a></foreignObject>";
  }
  out += "</svg></div><h2 id=\"list\">The same as a list</h2><ol class=\"toc-plain\">";
  for (const auto& row : rows)
    for (const std::uint32_t c : row) {
      out +=
          "<li><a href=\"" + relative(page, book.chapters[c].page()) + "\">" + escaped(book.chapters[c].title) + "</a>";
      std::string after;
      for (const std::uint32_t before : prerequisites(book, book.chapters[c]))
        after += (after.empty() ? "" : ", ") + escaped(book.chapters[before].title);
      if (!after.empty()) out += " <small>after " + after + "</small>";
      out += "</li>";
    }
  return out + "</ol>";
}

}  // namespace weave
