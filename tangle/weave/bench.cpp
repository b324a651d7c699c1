#include "bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "html.h"

namespace weave {
namespace {

struct Bar {
  std::string label;
  double value = 0, low = 0, high = 0;
  bool ours = false;
};

double at(const json::object& fields, std::string_view path) {
  const json::value* found = dig(fields, path);
  return found == nullptr ? std::nan("") : number_of(*found);
}

std::string with_unit(double value, std::string_view unit) { return shown(value) + " " + escaped(unit); }

/// Bars with the spread of the samples as a line; the numbers stand in the table beside it.
std::string plot(const std::vector<Bar>& bars) {
  double most = 0;
  for (const Bar& bar : bars) most = std::max({most, bar.value, std::isnan(bar.high) ? 0 : bar.high});
  if (bars.size() < 2 || most <= 0) return {};
  constexpr int row = 26, left = 132, width = 420;
  const auto x = [&](double value) { return left + static_cast<int>(value / most * width); };
  const int height = row * static_cast<int>(bars.size());
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 560 " +
                    std::to_string(height) + "\" aria-hidden=\"true\" focusable=\"false\">";
  int y = 0;
  for (const Bar& bar : bars) {
    const std::string middle = std::to_string(y + row / 2);
    out += "<text x=\"124\" y=\"" + std::to_string(y + row / 2 + 4) + "\">" + escaped(bar.label) +
           "</text><rect class=\"" + (bar.ours ? "ours" : "other") + "\" x=\"132\" y=\"" + std::to_string(y + 6) +
           "\" width=\"" + std::to_string(std::max(x(bar.value) - left, 1)) + "\" height=\"14\"/>";
    if (!std::isnan(bar.low) && !std::isnan(bar.high))
      out += "<path d=\"M" + std::to_string(x(bar.low)) + " " + middle + "H" + std::to_string(x(bar.high)) + "\"/>";
    out += bar.value / most < 0.8
               ? "<text class=\"value\" x=\"" + std::to_string(x(std::fmax(bar.value, bar.high)) + 6) + "\" y=\"" +
                     std::to_string(y + row / 2 + 4) + "\">" + shown(bar.value) + "</text>"
               : std::string();
    y += row;
  }
  return out + "</svg>";
}

}  // namespace

std::string machine_and_date(const Record& record) {
  return std::string(text(object(record.fields, "device"), "name")) + ", " + std::string(text(record.fields, "date"));
}

std::string what_of(const Bench& bench) {
  std::string html;
  bool code = false;
  for (const char c : text(bench.fields, "what")) {
    if (c == '`') html += (code = !code) ? "<code>" : "</code>";
    else escape_to(html, std::string_view(&c, 1));
  }
  return html;
}

std::string bench_table(const Stores& stores, std::string_view id, std::string_view page) {
  const Bench* bench = stores.bench(id);
  std::string out = "<figure class=\"bench\" id=\"result-" + escaped(id) +
                    "\"><figcaption><span class=\"role\">bench</span> <a class=\"title\" href=\"" +
                    relative(page, "benches.html#result-" + std::string(id)) + "\">" + escaped(id) + "</a>";
  if (bench != nullptr) {
    out += " <span class=\"what\">" + what_of(*bench) + "</span>";
  }
  out += "</figcaption>";
  if (bench == nullptr || bench->records.empty())
    return out + "<p class=\"none\">Not measured yet: no record is kept. <code>make bench BENCH=" + escaped(id) +
           "</code> measures it here.</p></figure>";

  const Record& record = bench->records.back();
  const json::object& fields = record.fields;
  const std::string_view unit = text(fields, "unit");
  const std::string_view peer = text(object(fields, "peer"), "name");
  const std::string_view judge = text(bench->fields, "judge");
  const bool judged_by_ratio = judge == "ratio" || judge == "fraction_of_limit" || unit == "ratio";
  // A ladder's record names its rungs; the last of them is what the record is about.
  std::vector<Bar> bars;
  std::string rows;
  if (const json::value* rungs = dig(fields, "config.rungs"); rungs != nullptr && rungs->is_array()) {
    for (const json::value& each : rungs->as_array()) {
      const json::object& rung = each.as_object();
      bars.push_back({std::string(text(rung, "name")), at(rung, "value"), std::nan(""), std::nan(""), true});
      rows += "<tr><th scope=\"row\">" + escaped(text(rung, "name")) + "</th><td>" +
              with_unit(at(rung, "value"), unit) + "</td><td>" + escaped(text(rung, "idea")) + "</td></tr>";
    }
  }
  bars.push_back({"this book", at(fields, "median"), at(fields, "min"), at(fields, "max"), true});
  rows += "<tr class=\"ours\"><th scope=\"row\">this book</th><td>" + with_unit(at(fields, "median"), unit) +
          "</td><td>" + shown(at(fields, "min")) + " to " + shown(at(fields, "max")) + ", " +
          std::to_string(integer(fields, "samples")) + " samples</td></tr>";
  if (!peer.empty()) {
    bars.push_back(
        {std::string(peer), at(fields, "peer.median"), at(fields, "peer.min"), at(fields, "peer.max"), false});
    rows += "<tr><th scope=\"row\">" + escaped(peer) + " " + escaped(text(object(fields, "peer"), "version")) +
            "</th><td>" + with_unit(at(fields, "peer.median"), unit) + "</td><td>" +
            escaped(text(object(fields, "peer"), "settings")) + "</td></tr>";
  }
  if (const double ratio = at(fields, "ratio"); !std::isnan(ratio))
    rows += "<tr><th scope=\"row\">ratio</th><td>" + shown(ratio) + "</td><td>both sides from one run</td></tr>";
  if (const double limit = at(fields, "limit.value"); !std::isnan(limit))
    rows += "<tr><th scope=\"row\">limit</th><td>" + with_unit(limit, unit) + "</td><td>" +
            escaped(text(object(fields, "limit"), "name")) + "</td></tr>";
  const auto mark = [&](std::string_view key, std::string_view label) {
    const double value = at(bench->fields, key);
    if (std::isnan(value)) return;
    rows += "<tr><th scope=\"row\">" + std::string(label) + "</th><td>" +
            (judged_by_ratio ? shown(value) : with_unit(value, unit)) + "</td><td>" +
            (judge == "fraction_of_limit" ? "of the limit"
             : judged_by_ratio            ? "ratio"
                                          : "") +
            "</td></tr>";
    if (!judged_by_ratio) bars.push_back({std::string(label), value, std::nan(""), std::nan(""), false});
  };
  const bool lower = text(fields, "better") == "lower";
  mark("floor", lower ? "at most" : "at least");
  mark("goal", "goal");
  out += plot(bars);
  out += "<div class=\"table\" role=\"region\" aria-label=\"Results of " + escaped(id) +
         "\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">" +
         std::string(lower ? "lower is better" : "higher is better") +
         "</th><th scope=\"col\">median</th><th scope=\"col\">spread or setting</th></tr></thead><tbody>" + rows +
         "</tbody></table></div>";
  out += "<p class=\"provenance\"><span class=\"grade R\">R</span> " + escaped(machine_and_date(record)) +
         ", commit <code>" + escaped(text(fields, "commit").substr(0, 7)) + "</code>. " +
         (record.stale ? "<strong class=\"stale\">The measured code has changed since.</strong> "
                       : "The measured code has not changed since. ") +
         "Again: <code>make bench BENCH=" + escaped(id) + "</code></p>";
  return out + "</figure>";
}

}  // namespace weave
