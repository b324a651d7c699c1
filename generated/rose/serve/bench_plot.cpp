// Draw latencies and throughput over the load.

#include "rose/serve/bench_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

namespace rose::serve {

namespace {

// One panel: where numbers stand in it.
constexpr double panel_width = 380, panel_height = 240, left = 56, right = 14, top = 30,
                 bottom = 40;
// Told apart by people who see colours differently, and on white and on print (Okabe and Ito).
constexpr std::array colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

struct Point {
  double x = 0.0;
  Spread y;  ///< only p50 for a number without a spread
};
using Curves = std::map<std::string, std::vector<Point>>;

struct Panel {
  std::string title;
  double x0 = 0, y0 = 0;          ///< the corner
  double most_x = 1, most_y = 1;  ///< both axes begin at 0
  double x(double v) const { return x0 + left + v / most_x * (panel_width - left - right); }
  double y(double v) const {
    return y0 + panel_height - bottom - v / most_y * (panel_height - top - bottom);
  }
};

Panel fit(std::string title, double x0, double y0, const Curves& curves) {
  Panel p{.title = std::move(title), .x0 = x0, .y0 = y0, .most_x = 0, .most_y = 0};
  for (const auto& [label, points] : curves)
    for (const Point& point : points) {
      p.most_x = std::max(p.most_x, point.x);
      p.most_y = std::max({p.most_y, point.y.p50, point.y.p90, point.y.p99});
    }
  constexpr double margin = 1.06;
  p.most_x = p.most_x > 0 ? p.most_x * margin : 1, p.most_y = p.most_y > 0 ? p.most_y * margin : 1;
  return p;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

// Axes with round numbers.
double round_step(double most, int count) {
  const double rough = most / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10.0 * power;
}

std::string axes(const Panel& p, std::string_view x_name) {
  const double base = p.y(0), end = p.x0 + panel_width - right;
  std::string out = fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"13\">{}</text>\n",
                                p.x0 + left, p.y0 + top - 12, escaped(p.title));
  for (double v = 0, step = round_step(p.most_y, 5); v <= p.most_y; v += step)
    out += fmt::format(
        "<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#ddd\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.6g}</text>\n",
        p.x0 + left, p.y(v), end, p.x0 + left - 6, p.y(v) + 4, v);
  for (double v = 0, step = round_step(p.most_x, 5); v <= p.most_x; v += step)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.6g}</text>\n",
                       p.x(v), base + 16, v);
  out +=
      fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#333\"/>\n", p.x0 + left, base, end);
  out +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#555\">{}</text>\n",
                  end, base + 32, x_name);
  return out;
}

// A line, a band, marks.
std::string curve(const Panel& p, const std::vector<Point>& points, const char* colour,
                  bool spread) {
  std::string line, upper, lower, marks;
  for (const Point& point : points) {
    line += fmt::format("{:.1f},{:.1f} ", p.x(point.x), p.y(point.y.p50));
    upper += fmt::format("{:.1f},{:.1f} ", p.x(point.x), p.y(point.y.p90));
    lower.insert(0, fmt::format("{:.1f},{:.1f} ", p.x(point.x), p.y(point.y.p50)));
    marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n",
                         p.x(point.x), p.y(point.y.p50), colour);
    if (spread)
      marks += fmt::format("<path d=\"M{:.1f} {:.1f}h8m-4 -4v8\" stroke=\"{}\" fill=\"none\"/>\n",
                           p.x(point.x) - 4, p.y(point.y.p99), colour);
  }
  std::string out;
  if (spread)
    out += fmt::format("<polygon points=\"{}{}\" fill=\"{}\" fill-opacity=\"0.18\"/>\n", upper,
                       lower, colour);
  out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n",
                     line, colour);
  return out + marks;
}

std::string draw(const Panel& p, const Curves& curves, std::string_view x_name, bool spread) {
  std::string out = axes(p, x_name);
  std::size_t i = 0;
  for (const auto& [label, points] : curves)
    out += curve(p, points, colours.at(i++ % colours.size()), spread);
  return out;
}

}  // namespace

// Put the picture together.
std::string plot_results(const std::vector<BenchResult>& results, const Objective& objective) {
  struct Latency {
    const char* title;
    Spread BenchSummary::*of;
  };
  constexpr std::array latencies = {Latency{"time to first token, ms", &BenchSummary::ttft},
                                    Latency{"time per output token, ms", &BenchSummary::tpot},
                                    Latency{"inter-token latency, ms", &BenchSummary::itl},
                                    Latency{"end to end, ms", &BenchSummary::e2e}};
  std::array<Curves, latencies.size()> curves;
  Curves throughput, goodput;
  bool open = true;
  for (const BenchResult& r : results) {
    const BenchSummary s = summarize(r, objective);
    open &= r.open();
    for (std::size_t i = 0; i < latencies.size(); ++i) {
      Spread y = s.*latencies.at(i).of;
      for (double* v : {&y.p50, &y.p90, &y.p99}) *v *= 1000.0;
      if (y.count > 0) curves.at(i)[r.label].push_back({r.rate(), y});
    }
    throughput[r.label].push_back(
        {r.rate(), {.p50 = s.per_second(static_cast<double>(s.completion))}});
    goodput[r.label].push_back({r.rate(), {.p50 = s.per_second(static_cast<double>(s.good))}});
  }
  for (auto* all : {&curves[0], &curves[1], &curves[2], &curves[3], &throughput, &goodput})
    for (auto& [label, points] : *all) std::ranges::sort(points, {}, &Point::x);
  const char* x_name = open ? "requests per second, offered" : "requests at once";
  constexpr double title = 34;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<title>Serving latencies and "
      "throughput</title>\n"
      "<desc>Lines are medians, bands reach to the 90th percentile, crosses mark the 99th.</desc>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      2 * panel_width, title + 3 * panel_height);
  double at = left;
  std::size_t i = 0;
  for (const auto& [label, points] : throughput) {
    out += fmt::format(
        "<rect x=\"{0}\" y=\"12\" width=\"12\" height=\"12\" fill=\"{1}\"/>"
        "<text x=\"{2}\" y=\"22\" font-size=\"13\">{3}</text>\n",
        at, colours.at(i++ % colours.size()), at + 17, escaped(label));
    constexpr double letter = 8, space = 40;
    at += letter * static_cast<double>(label.size()) + space;
  }
  for (std::size_t k = 0; k < curves.size(); ++k)
    out += draw(fit(latencies.at(k).title, k % 2 == 0 ? 0 : panel_width,
                    title + (k < 2 ? 0 : panel_height), curves.at(k)),
                curves.at(k), x_name, true);
  out += draw(fit("output tokens per second", 0, title + 2 * panel_height, throughput), throughput,
              x_name, false);
  out += draw(fit("good requests per second", panel_width, title + 2 * panel_height, goodput),
              goodput, x_name, false);
  return out + "</svg>\n";
}

}  // namespace rose::serve
