// Tests of the chapter "Automatic differentiation".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "labs/autodiff/tape.h"
#include "labs/autodiff/vjp.h"
#include "rose/trainer/gradcheck.h"

namespace rose::labs {
namespace {

// The tape finds the derivatives that we found by hand.
TEST(Tape, FindsTheDerivativesThatWeFoundByHand) {
  Tape tape;
  const Var a = tape.input(3.0);
  const Var b = tape.input(-2.0);
  const Var v = a * b + a;
  const Var loss = v * v;
  const std::vector<double> slope = tape.gradient(loss);
  EXPECT_EQ(loss.value, 9.0);
  EXPECT_EQ(slope[v.index], -6.0);
  EXPECT_EQ(slope[a.index], 6.0);
  EXPECT_EQ(slope[b.index], -18.0);
  EXPECT_EQ(tape.size(), 5u);
}

// One sweep differentiates with respect to a thousand inputs.
TEST(Tape, OneSweepDifferentiatesWithRespectToAThousandInputs) {
  Tape tape;
  std::vector<Var> x;
  for (int i = 0; i < 1000; ++i) x.push_back(tape.input(0.001 * i));
  Var sum = 0.0;
  for (const Var& each : x) sum += each * each;
  EXPECT_EQ(tape.size(), 3000u);  // an input, a product and a sum for each
  const std::vector<double> slope = tape.gradient(sum);
  for (int i = 0; i < 1000; ++i)
    EXPECT_DOUBLE_EQ(slope[x[static_cast<std::size_t>(i)].index], 0.002 * i);
}

TEST(Tape, AConstantHasNoDerivative) {
  Tape tape;
  const Var x = tape.input(2.0);
  const Var constant = exp(Var(1.0)) * 3.0;
  EXPECT_EQ(constant.tape, nullptr);
  EXPECT_EQ(tape.gradient(constant)[x.index], 0.0);
}

// The best step is where the derivation puts it.
TEST(FiniteDifferences, TheBestStepIsWhereTheDerivationPutsIt) {
  const double x = 1.0, u = std::numeric_limits<double>::epsilon() / 2;
  const double slope = std::exp(x), f = std::exp(x), third = std::exp(x);
  const double best = std::cbrt(3 * u * f / third);
  const auto error = [&](double h) {  // the worst of many nearby steps: rounding is erratic
    double worst = 0;
    for (int i = 0; i < 200; ++i) {
      const double step = h * (1 + 0.001 * i), up = x + step, down = x - step;
      worst = std::fmax(worst, std::fabs((std::exp(up) - std::exp(down)) / (up - down) - slope));
    }
    return worst;
  };
  EXPECT_LT(error(best),
            2 * 0.5 * best * best * third);         // the bound, and 1.2 for the steps' spread
  EXPECT_GT(error(best * 100), 100 * error(best));  // truncation grows with the square
  EXPECT_GT(error(best / 1000), 20 * error(best));  // rounding grows with the inverse
}

// A one-sided difference is best at the square root, and half as good in digits.
TEST(FiniteDifferences, OneSideLosesHalfTheDigits) {
  const double u = std::numeric_limits<double>::epsilon() / 2, f = std::exp(1.0), second = f;
  const double best = 2 * std::sqrt(u * f / second);  // least of h f''/2 + 2 u f / h
  const auto error = [&](double h) {
    double worst = 0;
    for (int i = 0; i < 200; ++i) {
      const double up = 1.0 + h * (1 + 0.001 * i);
      worst = std::fmax(worst, std::fabs((std::exp(up) - f) / (up - 1.0) - f));
    }
    return worst;
  };
  EXPECT_LT(error(best), 1.5 * 2 * std::sqrt(u * f * second));  // 1e-8: half of the digits
  EXPECT_GT(error(best * 100), 50 * error(best));
  EXPECT_GT(error(best / 1000), 50 * error(best));
}

// Let central differences, the tape and LibTorch judge a product.
using Inputs = std::vector<Doubles>;

Doubles random_doubles(std::size_t n, unsigned seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> draw(0.0, 1.0);
  Doubles out(n);
  for (double& x : out) x = draw(bits);
  return out;
}

// The largest difference of two arrays, relative to the largest entry of the second.
double gap(const Doubles& a, const Doubles& b) {
  double worst = 0, scale = 1e-30;
  for (const double x : b) scale = std::fmax(scale, std::fabs(x));
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < b.size(); ++i)
    worst = std::fmax(worst, std::fabs(a[i] - b[i]) / scale);
  return worst;
}

// Judge 1: forward is called as forward(vector of arrays), vjp as vjp(inputs, y_bar) -> gradients.
template <class Forward>
void judge_by_differences(Inputs x, const Doubles& y_bar, const Inputs& gradients,
                          Forward forward) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto phi = [&](std::span<const double>) {
      const Doubles y = forward(x);
      return std::inner_product(y.begin(), y.end(), y_bar.begin(), 0.0);
    };
    const auto check = trainer::check_gradient(phi, std::span<double>(x[i]),
                                               std::span<const double>(gradients[i]));
    EXPECT_LT(check.error, 1e-6) << "differences: input " << i << " entry " << check.index << ": "
                                 << check.analytic << " against " << check.numeric;
  }
}

// Judge by the tape.
template <class Forward>
void judge_by_tape(const Inputs& x, const Doubles& y_bar, const Inputs& gradients,
                   Forward forward) {
  Tape tape;
  std::vector<Array<Var>> inputs;
  for (const Doubles& array : x) {
    inputs.emplace_back();
    for (const double value : array) inputs.back().push_back(tape.input(value));
  }
  const Array<Var> y = forward(inputs);
  Var phi = 0.0;
  for (std::size_t a = 0; a < y.size(); ++a) phi += y[a] * y_bar[a];
  const std::vector<double> slope = tape.gradient(phi);
  for (std::size_t i = 0; i < x.size(); ++i) {
    Doubles expected;
    for (const Var& v : inputs[i]) expected.push_back(slope[v.index]);
    EXPECT_LT(gap(gradients[i], expected), 1e-12) << "tape: input " << i;
  }
}

// Judge by LibTorch's autograd.
using Shapes = std::vector<std::vector<std::int64_t>>;

template <class Operation>
void judge_by_torch(const Inputs& x, const Shapes& shapes, const Doubles& y_bar, const Doubles& y,
                    const Inputs& gradients, Operation operation) {
  const auto tensor = [](const Doubles& data, at::IntArrayRef shape) {
    return at::from_blob(const_cast<double*>(data.data()), shape, at::kDouble).clone();
  };
  const auto array = [](const at::Tensor& t) {
    const at::Tensor flat = t.detach().contiguous();
    return Doubles(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
  };
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < x.size(); ++i) {
    inputs.push_back(tensor(x[i], shapes[i]).set_requires_grad(true));
  }
  const at::Tensor out = operation(inputs);
  EXPECT_LT(gap(y, array(out)), 1e-12) << "the forward passes differ";
  const auto expected =
      torch::autograd::grad({out}, inputs, {tensor(y_bar, out.sizes())}, false, false, false);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LT(gap(gradients[i], array(expected[i])), 1e-12) << "LibTorch: input " << i;
  }
}

// All three. `forward` accepts arrays of double and of Var.
template <class Forward, class Vjp, class Operation>
void judge(const Inputs& x, const Shapes& shapes, Forward forward, Vjp vjp, Operation operation) {
  const Doubles y = forward(x);
  const Doubles y_bar = random_doubles(y.size(), 99);
  const Inputs gradients = vjp(x, y_bar);
  judge_by_differences(x, y_bar, gradients, forward);
  judge_by_tape(x, y_bar, gradients, forward);
  judge_by_torch(x, shapes, y_bar, y, gradients, operation);
}

// The linear layer goes back.
TEST(Vjp, Linear) {
  const std::size_t m = 3, n = 4, k = 5;
  judge(
      {random_doubles(m * k, 1), random_doubles(n * k, 2), random_doubles(n, 3)},
      {{3, 5}, {4, 5}, {4}}, [&](const auto& in) { return linear(in[0], in[1], in[2], m, n, k); },
      [&](const Inputs& in, const Doubles& y_bar) {
        auto g = linear_vjp(in[0], in[1], y_bar, m, n, k);
        return Inputs{g.x, g.w, g.b};
      },
      [](const auto& in) { return at::linear(in[0], in[1], in[2]); });
}

// Repeated tokens add up.
TEST(Vjp, Embedding) {
  const std::vector<int> ids{2, 0, 2, 2, 5};
  const at::Tensor index = at::tensor(std::vector<std::int64_t>{2, 0, 2, 2, 5});
  judge(
      {random_doubles(6 * 3, 4)}, {{6, 3}},
      [&](const auto& in) { return embedding(ids, in[0], 3); },
      [&](const Inputs&, const Doubles& y_bar) { return Inputs{embedding_vjp(ids, y_bar, 6, 3)}; },
      [&](const auto& in) { return at::embedding(in[0], index); });
}

// The activations go back.
TEST(Vjp, SiluMultiply) {
  judge(
      {random_doubles(20, 5), random_doubles(20, 6)}, {{20}, {20}},
      [](const auto& in) { return silu_multiply(in[0], in[1]); },
      [](const Inputs& in, const Doubles& y_bar) {
        auto [gate, up] = silu_multiply_vjp(in[0], in[1], y_bar);
        return Inputs{gate, up};
      },
      [](const auto& in) { return at::silu(in[0]) * in[1]; });
}

TEST(Vjp, Gelu) {
  for (const bool approximate : {false, true}) {
    judge(
        {random_doubles(40, 7)}, {{40}}, [&](const auto& in) { return gelu(in[0], approximate); },
        [&](const Inputs& in, const Doubles& y_bar) {
          return Inputs{gelu_vjp(in[0], y_bar, approximate)};
        },
        [&](const auto& in) { return at::gelu(in[0], approximate ? "tanh" : "none"); });
  }
}

// The norms go back, and leave nothing along the row.
TEST(Vjp, Norms) {
  const std::size_t m = 3, c = 7;
  for (const bool center : {false, true}) {
    judge(
        {random_doubles(m * c, 8), random_doubles(c, 9)}, {{3, 7}, {7}},
        [&](const auto& in) { return norm(in[0], in[1], m, 1e-3, center); },
        [&](const Inputs& in, const Doubles& y_bar) {
          auto g = norm_vjp(in[0], in[1], y_bar, m, 1e-3, center);
          return Inputs{g.x, g.w};
        },
        [&](const auto& in) {
          if (center) return at::layer_norm(in[0], {7}, in[1], {}, 1e-3);
          return in[0] * at::rsqrt(in[0].square().mean(1, true) + 1e-3) * in[1];
        });
  }
}

TEST(Vjp, WithoutEpsilonTheNormsGradientIsOrthogonalToTheRow) {
  const Doubles x = random_doubles(16, 10), w = random_doubles(16, 11),
                y_bar = random_doubles(16, 12);
  const Doubles g = norm_vjp(x, w, y_bar, 1, 0.0, false).x;
  EXPECT_NEAR(std::inner_product(g.begin(), g.end(), x.begin(), 0.0), 0.0, 1e-13);
}

// Predicted minus observed.
TEST(Vjp, CrossEntropyByHand) {
  const std::vector<int> target{0};
  const Doubles logits{0.0, 0.0, std::log(2.0)};
  EXPECT_NEAR(cross_entropy(logits, target, 3)[0], std::log(4.0), 1e-15);
  const Doubles g = cross_entropy_vjp(logits, target, {1.0}, 3);
  EXPECT_NEAR(g[0], -0.75, 1e-15);
  EXPECT_NEAR(g[1], 0.25, 1e-15);
  EXPECT_NEAR(g[2], 0.5, 1e-15);
}

TEST(Vjp, CrossEntropy) {
  const std::vector<int> targets{3, 0, 4, 3};
  const at::Tensor index = at::tensor(std::vector<std::int64_t>{3, 0, 4, 3});
  judge(
      {random_doubles(4 * 5, 13)}, {{4, 5}},
      [&](const auto& in) { return cross_entropy(in[0], targets, 5); },
      [&](const Inputs& in, const Doubles& y_bar) {
        return Inputs{cross_entropy_vjp(in[0], targets, y_bar, 5)};
      },
      [&](const auto& in) {
        return at::cross_entropy_loss(in[0], index, {}, at::Reduction::None);
      });
}

// Rotary positions go back by turning back.
TEST(Vjp, Rope) {
  const std::vector<int> positions{0, 1, 7, 100};
  const Doubles frequencies{1.0, 0.1, 0.01};
  const at::Tensor angle = at::outer(at::tensor(std::vector<double>{0, 1, 7, 100}),
                                     at::tensor(std::vector<double>{1.0, 0.1, 0.01}));
  judge(
      {random_doubles(4 * 6, 14)}, {{4, 6}},
      [&](const auto& in) { return rope(in[0], positions, frequencies); },
      [&](const Inputs&, const Doubles& y_bar) {
        return Inputs{rope(y_bar, positions, frequencies, -1.0)};
      },
      [&](const auto& in) {
        const at::Tensor a = in[0].slice(1, 0, 3), b = in[0].slice(1, 3, 6);
        return at::cat({a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()}, 1);
      });
}

// Causal attention with grouped heads goes back.
TEST(Vjp, Attention) {
  const std::size_t t = 5, heads = 4, kv_heads = 2, d = 3;
  const auto forward = [&](const auto& in) {
    return attention(in[0], in[1], in[2], t, heads, kv_heads, d);
  };
  judge(
      {random_doubles(t * heads * d, 15), random_doubles(t * kv_heads * d, 16),
       random_doubles(t * kv_heads * d, 17)},
      {{5, 4, 3}, {5, 2, 3}, {5, 2, 3}}, forward,
      [&](const Inputs& in, const Doubles& y_bar) {
        Doubles logsumexp;
        const Doubles out = attention(in[0], in[1], in[2], t, heads, kv_heads, d, &logsumexp);
        auto g = attention_vjp(in[0], in[1], in[2], out, logsumexp, y_bar, t, heads, kv_heads, d);
        return Inputs{g.q, g.k, g.v};
      },
      [](const auto& in) {
        const auto head_first = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
        return at::scaled_dot_product_attention(head_first(in[0]), head_first(in[1]),
                                                head_first(in[2]), {}, 0.0, true, std::nullopt,
                                                true)
            .squeeze(0)
            .transpose(0, 1);
      });
}

}  // namespace
}  // namespace rose::labs
