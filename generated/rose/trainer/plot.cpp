// Axes, two lines, a legend.

#include "rose/trainer/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rose::trainer {

namespace {

constexpr double kWidth = 760, kHeight = 420, kLeft = 60, kRight = 20, kTop = 40, kBottom = 45;

// Map numbers to places, and numbers to lines.
struct Frame {
  double x0 = 0, x1 = 1, y0 = 0, y1 = 1;
  double x(double v) const { return kLeft + (v - x0) / (x1 - x0) * (kWidth - kLeft - kRight); }
  double y(double v) const {
    return kHeight - kBottom - (v - y0) / (y1 - y0) * (kHeight - kTop - kBottom);
  }
};

Series finite(const Series& series) {
  Series out;
  std::ranges::copy_if(series, std::back_inserter(out),
                       [](const auto& p) { return std::isfinite(p.second); });
  return out;
}

Frame frame_of(const Series& a, const Series& b) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  Frame f{inf, -inf, inf, -inf};
  for (const Series* s : {&a, &b}) {
    for (const auto& [x, y] : *s) {
      f.x0 = std::min(f.x0, x), f.x1 = std::max(f.x1, x);
      f.y0 = std::min(f.y0, y), f.y1 = std::max(f.y1, y);
    }
  }
  if (f.x0 > f.x1) return {};
  if (f.x0 == f.x1) f.x1 = f.x0 + 1;
  const double margin = std::max(0.04 * (f.y1 - f.y0), 1e-3);
  f.y0 -= margin, f.y1 += margin;
  return f;
}

Series moving_mean(const Series& series) {
  const std::size_t span = std::max<std::size_t>(1, series.size() / 50);
  Series out;
  double sum = 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    sum += series[i].second;
    if (i >= span) sum -= series[i - span].second;
    out.emplace_back(series[i].first, sum / static_cast<double>(std::min(i + 1, span)));
  }
  return out;
}

std::string line(const Frame& f, const Series& series, const char* style) {
  std::string points;
  for (const auto& [x, y] : series) points += fmt::format("{:.1f},{:.1f} ", f.x(x), f.y(y));
  return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style, points);
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  if (!(rough > 0)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = power * (rough / power < 1.5   ? 1
                               : rough / power < 3.5 ? 2
                               : rough / power < 7.5 ? 5
                                                     : 10);
  std::vector<double> out;
  for (double i = std::ceil(low / step); i * step <= high + step * 1e-9; ++i)
    out.push_back(i * step);
  return out;
}

// Put the picture together.
std::string plot_losses(const std::string& title, const Series& training_given,
                        const Series& validation_given) {
  const Series training = finite(training_given), validation = finite(validation_given);
  const Frame f = frame_of(training, validation);
  std::string name;
  for (const char c : title) name += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  std::string description = "no losses yet";
  if (!training.empty())
    description = fmt::format("training loss from {:.3f} at step {} to {:.3f} at step {}",
                              training.front().second, training.front().first,
                              training.back().second, training.back().first);
  if (!validation.empty())
    description += fmt::format("; validation loss {:.3f} at the end", validation.back().second);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<title>{}</title>\n<desc>{}</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"22\" font-size=\"15\">{}</text>\n",
      kWidth, kHeight, name, description, kLeft, name);
  for (const double y : ticks(f.y0, f.y1, 6))
    out += fmt::format(
        "<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.6g}</text>\n",
        kLeft, f.y(y), kWidth - kRight, kLeft - 6, f.y(y) + 4, y);
  for (const double x : ticks(f.x0, f.x1, 8))
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.6g}</text>\n", f.x(x),
                       kHeight - kBottom + 18, x);
  out += line(f, training, "stroke=\"#9bbbe0\" stroke-width=\"1\"");
  out += line(f, moving_mean(training), "stroke=\"#1f5fa8\" stroke-width=\"2\"");
  out += line(f, validation, "stroke=\"#c2410c\" stroke-width=\"2\"");
  out += fmt::format(
      "<text x=\"{0}\" y=\"{1}\" text-anchor=\"end\" fill=\"#1f5fa8\">training</text>"
      "<text x=\"{0}\" y=\"{2}\" text-anchor=\"end\" fill=\"#c2410c\">validation</text>\n"
      "<text x=\"{3}\" y=\"{4}\" text-anchor=\"middle\">step</text>\n</svg>\n",
      kWidth - kRight - 6, kTop + 14, kTop + 30, kWidth / 2, kHeight - 8);
  return out;
}

}  // namespace rose::trainer
