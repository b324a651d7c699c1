// Fit what is linear exactly, and search for the rest.

#include "rose/trainer/scaling_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "rose/core/error.h"
#include "rose/core/rng.h"

namespace rose::trainer {

// Read a law.
double ScalingLaw::loss(double parameters, double tokens) const {
  return floor + size * std::pow(parameters, -alpha) + data * std::pow(tokens, -beta);
}

Budget ScalingLaw::best(double flops) const {
  const double product = flops / 6.0;
  const double ratio = std::pow(alpha * size / (beta * data), 1.0 / (alpha + beta));
  const double parameters = ratio * std::pow(product, growth());
  return {parameters, product / parameters};
}

namespace {

// Solve for three weights that may not be negative.
using Three = std::array<double, 3>;

struct Normal {
  std::array<Three, 3> matrix{};
  Three right{};
};

// Of the weights whose bit is set in `active`; the others stay 0. Gaussian elimination; tiny pivots give NaN.
Three solve(const Normal& normal, unsigned active) {
  auto m = normal.matrix;
  Three x = normal.right;
  for (std::size_t i = 0; i < 3; ++i) {
    if ((active >> i & 1U) != 0) continue;
    for (std::size_t j = 0; j < 3; ++j) m[i][j] = m[j][i] = 0.0;
    m[i][i] = 1.0, x[i] = 0.0;
  }
  for (std::size_t p = 0; p < 3; ++p) {
    for (std::size_t i = p + 1; i < 3; ++i) {
      const double factor = m[i][p] / m[p][p];
      for (std::size_t j = p; j < 3; ++j) m[i][j] -= factor * m[p][j];
      x[i] -= factor * x[p];
    }
  }
  for (std::size_t p = 3; p-- > 0;) {
    for (std::size_t j = p + 1; j < 3; ++j) x[p] -= m[p][j] * x[j];
    x[p] /= m[p][p];
  }
  return x;
}

// The best of the subsets whose weights are all positive: the larger ones first, since they fit better.
Three solve_positive(const Normal& normal) {
  Three best{};
  double most = -std::numeric_limits<double>::infinity();
  for (unsigned active = 1; active < 8; ++active) {
    const Three x = solve(normal, active);
    double gain =
        0.0;  // how much the squared error falls: x.(2 right - matrix x) = x.right at the optimum
    bool positive = true;
    for (std::size_t i = 0; i < 3; ++i) gain += x[i] * normal.right[i], positive &= x[i] >= 0.0;
    if (positive && gain > most) best = x, most = gain;
  }
  return best;
}

// Weigh runs down that stand out.
struct Fit {
  Three weights{};
  double error = std::numeric_limits<double>::infinity();
};

// For given exponents, which act on sizes and amounts relative to those of `middle`.
Fit fit_weights(std::span<const ScalingRun> runs, const Budget& middle, double alpha, double beta,
                double huber) {
  std::vector<Three> rows(runs.size());
  std::vector<double> trust(runs.size(), 1.0);
  for (std::size_t i = 0; i < runs.size(); ++i)
    rows[i] = {1.0 / runs[i].loss,
               std::pow(runs[i].parameters / middle.parameters, -alpha) / runs[i].loss,
               std::pow(runs[i].tokens / middle.tokens, -beta) / runs[i].loss};
  Fit fit;
  constexpr int rounds = 5;
  for (int round = 0; round < rounds; ++round) {
    Normal normal;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t i = 0; i < 3; ++i) {
        normal.right[i] += trust[r] * rows[r][i];
        for (std::size_t j = 0; j < 3; ++j)
          normal.matrix[i][j] += trust[r] * rows[r][i] * rows[r][j];
      }
    }
    fit.weights = solve_positive(normal);
    fit.error = 0.0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      double off = -1.0;
      for (std::size_t i = 0; i < 3; ++i) off += fit.weights[i] * rows[r][i];
      off = std::abs(off);
      trust[r] = off <= huber ? 1.0 : huber / off;
      fit.error += off <= huber ? off * off / 2 : huber * (off - huber / 2);
    }
  }
  return fit;
}

// Search for the two exponents.
ScalingLaw search(std::span<const ScalingRun> runs, double huber) {
  Budget middle;
  for (const ScalingRun& run : runs)
    middle.parameters += std::log(run.parameters), middle.tokens += std::log(run.tokens);
  const auto count = static_cast<double>(runs.size());
  middle = {std::exp(middle.parameters / count), std::exp(middle.tokens / count)};

  constexpr int cells = 10, rounds = 22;
  constexpr double lowest = 0.02, widest = 1.5;
  double alpha = lowest + widest / 2, beta = alpha, width = widest;
  Fit best;
  for (int round = 0; round < rounds; ++round, width /= 2) {
    const double from_alpha = alpha, from_beta = beta;
    for (int i = 0; i <= cells; ++i) {
      for (int j = 0; j <= cells; ++j) {
        const double a = std::max(lowest, from_alpha + width * (double(i) / cells - 0.5));
        const double b = std::max(lowest, from_beta + width * (double(j) / cells - 0.5));
        const Fit fit = fit_weights(runs, middle, a, b, huber);
        if (fit.error < best.error) best = fit, alpha = a, beta = b;
      }
    }
  }
  return {best.weights[0], best.weights[1] * std::pow(middle.parameters, alpha),
          best.weights[2] * std::pow(middle.tokens, beta), alpha, beta};
}

}  // namespace

// Check, fit, resample.
ScalingLaw fit_scaling_law(std::span<const ScalingRun> runs, double huber) {
  std::set<double> sizes, texts;
  for (const ScalingRun& run : runs) {
    sizes.insert(run.parameters), texts.insert(run.tokens);
    if (!(run.parameters > 0 && run.tokens > 0 && run.loss > 0 && std::isfinite(run.loss)))
      throw core::Error(core::Code::invalid_argument, "a run without a size, a text or a loss")
          .in(fmt::format("{} parameters, {} tokens", run.parameters, run.tokens));
  }
  if (runs.size() < 5 || sizes.size() < 3 || texts.size() < 3)
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} runs of {} sizes and {} amounts of text do not tell five "
                                  "numbers",
                                  runs.size(), sizes.size(), texts.size()))
        .hint("at least three of each, five runs in all");
  return search(runs, huber);
}

std::vector<ScalingLaw> resampled_laws(std::span<const ScalingRun> runs, int resamples,
                                       std::uint64_t seed, double huber) {
  fit_scaling_law(runs, huber);  // refuses what cannot be fitted
  core::Rng rng(seed);
  std::vector<ScalingLaw> laws;
  std::vector<ScalingRun> drawn(runs.size());
  while (laws.size() < static_cast<std::size_t>(resamples)) {
    for (ScalingRun& run : drawn) run = runs[rng.below64(runs.size())];
    std::set<double> sizes, texts;
    for (const ScalingRun& run : drawn) sizes.insert(run.parameters), texts.insert(run.tokens);
    if (sizes.size() >= 3 && texts.size() >= 3) laws.push_back(search(drawn, huber));
  }
  return laws;
}

}  // namespace rose::trainer
