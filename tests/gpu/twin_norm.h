// Norms: forward bit for bit as the reference rows, backward beside double precision.
#pragma once

#include <cmath>

#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/norm_rows.h"
#include "twin_elementwise.h"

namespace rose::kernels::gpu {

struct NormDraw {
  explicit NormDraw(Fuzz& f)
      : fuzz(f),
        heads(f.one_of<std::int64_t>({1, 1, 1, 3, 16})),
        rows(f.size(heads == 1 ? 70 : 9)),
        cols(heads == 1 ? f.some(20'000) : f.some(300)),
        dtype(row_type(f)),
        weight_dtype(row_type(f)),
        weight(f.input(1, cols, weight_dtype)),
        bias(f.input(1, cols, weight_dtype)) {}
  Input input() { return fuzz.input(rows, heads * cols, dtype, 2); }
  Output output() { return fuzz.output(rows, heads * cols, dtype); }
  std::int64_t count() const { return rows * heads; }
  std::span<const float> row(const std::vector<float>& values, std::int64_t r) const {
    return std::span(values).subspan(static_cast<std::size_t>(r * cols),
                                     static_cast<std::size_t>(cols));
  }
  void expect(const Output& output, std::span<const float> expected, const char* name) {
    expect_same_bits(output.matrix.values(), expected,
                     std::string(name) + " of (" + fuzz.drawn() + ")");
    output.matrix.expect_guards(name);
  }
  Fuzz& fuzz;
  std::int64_t heads, rows, cols;
  DType dtype, weight_dtype;
  Input weight, bias;
  static constexpr float eps = 1e-5f;
};

/// Both norms of x, or of round(x + residual): y, and the statistics.
struct NormRows {
  std::vector<float> sum, y, mean, inv;
};
inline NormRows norm_rows(const NormDraw& n, const std::vector<float>& x,
                          const std::vector<float>* residual, bool centre) {
  NormRows out{x, std::vector<float>(x.size()), {}, {}};
  if (residual != nullptr) {
    for (std::size_t i = 0; i < x.size(); ++i) out.sum[i] = rounded(x[i] + (*residual)[i], n.dtype);
  }
  for (std::int64_t r = 0; r < n.count(); ++r) {
    const auto y = std::span(out.y).subspan(static_cast<std::size_t>(r * n.cols),
                                            static_cast<std::size_t>(n.cols));
    if (centre) {
      const auto [mean, inv] = reference::layernorm_row(n.row(out.sum, r), n.weight.values(),
                                                        n.bias.values(), n.eps, n.dtype, y);
      out.mean.push_back(mean);
      out.inv.push_back(inv);
    } else {
      out.inv.push_back(
          reference::rmsnorm_row(n.row(out.sum, r), n.weight.values(), n.eps, n.dtype, y));
    }
  }
  return out;
}

inline void twin_norm(Fuzz& fuzz) {
  NormDraw n(fuzz);
  const bool centre = n.heads == 1 && fuzz.coin(), with_residual = n.heads == 1 && fuzz.coin();
  const Input x = n.input(), residual = n.input();
  const Output sum = n.output(), y = n.output();
  const auto statistics = static_cast<std::size_t>(n.count()) * sizeof(float);
  Buffer mean(statistics), inv(statistics);
  const Matrix w = n.weight.view(), b = n.bias.view();
  if (n.heads > 1) {
    rmsnorm_heads(x.view(), w, n.eps, y.view(), inv.as<float>(), {});
  } else if (centre && with_residual) {
    add_layernorm(x.view(), residual.view(), w, b, n.eps, sum.view(), y.view(), mean.as<float>(),
                  inv.as<float>(), {});
  } else if (centre) {
    layernorm(x.view(), w, b, n.eps, y.view(), mean.as<float>(), inv.as<float>(), {});
  } else if (with_residual) {
    add_rmsnorm(x.view(), residual.view(), w, n.eps, sum.view(), y.view(), inv.as<float>(), {});
  } else {
    rmsnorm(x.view(), w, n.eps, y.view(), inv.as<float>(), {});
  }
  const NormRows expected =
      norm_rows(n, x.values(), with_residual ? &residual.values() : nullptr, centre);
  n.expect(y, expected.y, "norm");
  if (with_residual) n.expect(sum, expected.sum, "residual sum");
  expect_same_bits(inv.values<float>(), expected.inv,
                   "inverse deviations of (" + fuzz.drawn() + ")");
  if (centre)
    expect_same_bits(mean.values<float>(), expected.mean, "means of (" + fuzz.drawn() + ")");
}

inline void twin_norm_backward(Fuzz& fuzz) {
  NormDraw n(fuzz);
  const bool centre = n.heads == 1 && fuzz.coin(), with_add = n.heads == 1 && fuzz.coin();
  const Input x = n.input(), dy = n.input(), past = n.input();
  const Output dx = n.output();
  const NormRows forward = norm_rows(n, x.values(), nullptr, centre);
  const Buffer inv = Buffer::of(std::span<const float>(forward.inv));
  const Buffer mean = Buffer::of(std::span<const float>(forward.mean));
  const std::vector<float> begin = random_values(n.cols, 5);
  const Buffer dweight = Buffer::of(std::span<const float>(begin)),
               dbias = Buffer::of(std::span<const float>(begin));
  const Buffer workspace(norm_backward_workspace(n.count(), n.cols));
  const Matrix add = with_add ? past.view() : Matrix{};
  if (n.heads > 1) {
    rmsnorm_heads_backward(x.view(), n.weight.view(), inv.as<float>(), dy.view(), dx.view(),
                           dweight.as<float>(), workspace.workspace(), {});
  } else if (centre) {
    layernorm_backward(x.view(), n.weight.view(), mean.as<float>(), inv.as<float>(), dy.view(), add,
                       dx.view(), dweight.as<float>(), dbias.as<float>(), workspace.workspace(),
                       {});
  } else {
    rmsnorm_backward(x.view(), n.weight.view(), inv.as<float>(), dy.view(), add, dx.view(),
                     dweight.as<float>(), workspace.workspace(), {});
  }
  const auto cols = static_cast<std::size_t>(n.cols);
  std::vector<double> reference, bounds, dw(begin.begin(), begin.end()), db = dw, dw_abs(cols),
                                                                         db_abs(cols);
  const double chain = gamma(8.0 * static_cast<double>((n.cols + 2047) / 2048) + 16);
  for (std::int64_t r = 0; r < n.count(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    const double inverse = forward.inv[at], centre_of_row = centre ? forward.mean[at] : 0.0f;
    double g_mean = 0, gh_mean = 0, g_abs = 0, gh_abs = 0;
    const auto hat = [&](std::size_t c) {
      return (n.row(x.values(), r)[c] - centre_of_row) * inverse;
    };
    const auto d = [&](std::size_t c) { return double{n.row(dy.values(), r)[c]}; };
    for (std::size_t c = 0; c < cols; ++c) {
      const double g = d(c) * n.weight.values()[c];
      g_mean += g / static_cast<double>(cols), g_abs += std::abs(g) / static_cast<double>(cols);
      gh_mean += g * hat(c) / static_cast<double>(cols),
          gh_abs += std::abs(g * hat(c)) / static_cast<double>(cols);
      dw[c] += d(c) * hat(c), dw_abs[c] += std::abs(d(c) * hat(c));
      db[c] += d(c), db_abs[c] += std::abs(d(c));
    }
    if (!centre) g_mean = g_abs = 0;
    for (std::size_t c = 0; c < cols; ++c) {
      const double g = d(c) * n.weight.values()[c], h = hat(c);
      const double value = inverse * (g - g_mean - h * gh_mean);
      const double other = with_add ? double{n.row(past.values(), r)[c]} : 0.0;
      reference.push_back(value + other);
      // x - mean may cancel: its rounding is relative to the difference, which is exact in the reference's inputs
      bounds.push_back(std::abs(inverse) *
                       (8 * 0x1p-24 * (std::abs(g) + g_abs + std::abs(h) * gh_abs) +
                        chain * (g_abs + std::abs(h) * gh_abs)));
    }
  }
  fuzz.expect(dx, reference, bounds, "dx");
  const double rows_chain = gamma(static_cast<double>(n.count()) + 8);
  for (std::size_t c = 0; c < cols; ++c) {
    dw_abs[c] = rows_chain * (dw_abs[c] + std::abs(double{begin[c]}));
    db_abs[c] = rows_chain * (db_abs[c] + std::abs(double{begin[c]}));
  }
  expect_close(dweight.values<float>(), dw, dw_abs, DType::f32,
               "dweight of (" + fuzz.drawn() + ")");
  if (centre)
    expect_close(dbias.values<float>(), db, db_abs, DType::f32, "dbias of (" + fuzz.drawn() + ")");
}

}  // namespace rose::kernels::gpu
