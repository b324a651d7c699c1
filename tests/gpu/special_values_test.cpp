// A NaN or an infinity in one row: that row becomes what IEEE arithmetic makes of it, and every other row keeps its bits.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "labs/gpu/gpu_test.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_backward.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/optimizer.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/gpu/softmax.h"

namespace rose::kernels::gpu {
namespace {

using Values = std::vector<float>;
using Row = std::vector<double>;

/// An operation on rows of bf16, and what it makes of one row in double precision.
struct OnRows {
  std::string name;
  std::int64_t rows, cols;
  std::function<Values(const Values& x)> run;
  std::function<Row(const Row& x, std::int64_t row)> reference;
};

Values in_bf16(Values v) {
  for (float& x : v) x = rounded(x, DType::bf16);
  return v;
}
DeviceMatrix on_device(const Values& v, std::int64_t rows) {
  return DeviceMatrix::of(v, rows, static_cast<std::int64_t>(v.size()) / rows, DType::bf16);
}

OnRows norm_operation(std::int64_t rows, std::int64_t cols, bool centre) {
  const Values weight = in_bf16(random_values(cols, 21)), bias = in_bf16(random_values(cols, 22));
  const auto run = [=](const Values& x) {
    const DeviceMatrix in = on_device(x, rows), w = on_device(weight, 1), b = on_device(bias, 1),
                       y(rows, cols, DType::bf16);
    if (centre) {
      layernorm(in.view(), w.view(), b.view(), 1e-5f, y.view(), nullptr, nullptr, {});
    } else {
      rmsnorm(in.view(), w.view(), 1e-5f, y.view(), nullptr, {});
    }
    return y.values();
  };
  const auto reference = [=](const Row& x, std::int64_t) {
    const auto n = static_cast<double>(cols);
    double mean = 0, square = 0;
    if (centre) {
      for (const double e : x) mean += e / n;
    }
    for (const double e : x) square += (e - mean) * (e - mean) / n;
    const double inv = 1 / std::sqrt(square + 1e-5);
    Row y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) * inv * double{weight[i]} + (centre ? double{bias[i]} : 0.0));
    return y;
  };
  return {centre ? "layernorm" : "rmsnorm", rows, cols, run, reference};
}

OnRows softmax_operation(std::int64_t rows, std::int64_t cols) {
  const auto run = [=](const Values& x) {
    const DeviceMatrix in = on_device(x, rows), y(rows, cols, DType::bf16);
    softmax(in.view(), y.view(), {});
    return y.values();
  };
  const auto reference = [](const Row& x, std::int64_t) {
    double highest = -INFINITY, sum = 0;
    for (const double e : x) highest = e > highest ? e : highest;
    Row y;
    for (const double e : x) sum += y.emplace_back(std::exp(e - highest));
    for (double& e : y) e /= sum;
    return y;
  };
  return {"softmax", rows, cols, run, reference};
}

Row product_row(const Row& x, const Values& weight) {
  Row y(weight.size() / x.size());
  for (std::size_t n = 0; n < y.size(); ++n) {
    for (std::size_t k = 0; k < x.size(); ++k) y[n] += x[k] * double{weight[n * x.size() + k]};
  }
  return y;
}

OnRows product_operation(std::int64_t rows, std::int64_t outputs, std::int64_t cols,
                         LinearPath path) {
  const Values weight = in_bf16(random_values(outputs * cols, 23));
  const auto run = [=](const Values& x) {
    LinearPlan plan;
    for (const LinearPlan& one : linear_candidates({.m = rows, .n = outputs, .k = cols}, false)) {
      if (one.path == path) plan = one;
    }
    EXPECT_EQ(plan.path, path) << "no such plan";
    const DeviceMatrix in = on_device(x, rows), w = on_device(weight, outputs),
                       y(rows, outputs, DType::bf16);
    if (plan.path != path) return y.values();
    const Buffer workspace(plan.workspace_bytes);
    linear(plan, {.x = in.view(), .w = w.view(), .y = y.view()}, workspace.workspace(), {});
    return y.values();
  };
  return {"linear, path " + std::to_string(static_cast<int>(path)), rows, cols, run,
          [=](const Row& x, std::int64_t) { return product_row(x, weight); }};
}

OnRows packed_operation(std::int64_t rows, std::int64_t outputs, std::int64_t cols) {
  std::vector<std::uint8_t> bytes;
  Values weight;
  for (std::int64_t i = 0; i < outputs * cols; ++i) {
    const auto q = static_cast<std::int8_t>(i * 37 % 200 - 99);
    bytes.push_back(static_cast<std::uint8_t>(q));
    weight.push_back(rounded(static_cast<float>(q) * 0.01f, DType::bf16));
  }
  const auto run = [=](const Values& x) {
    const DeviceMatrix in = on_device(x, rows), y(rows, outputs, DType::bf16);
    const Buffer data = Buffer::of(std::span<const std::uint8_t>(bytes)),
                 scales = Buffer::of(
                     std::span<const float>(Values(static_cast<std::size_t>(outputs), 0.01f)));
    linear_packed(in.view(),
                  {.data = data.data(),
                   .format = WeightFormat::int8,
                   .rows = outputs,
                   .cols = cols,
                   .scales = scales.as<float>()},
                  nullptr, y.view(), {});
    return y.values();
  };
  return {"linear_packed", rows, cols, run,
          [=](const Row& x, std::int64_t) { return product_row(x, weight); }};
}

OnRows rope_operation(std::int64_t rows, std::int64_t cols) {
  const std::int64_t pairs = cols / 2;
  Values cosines, sines;
  for (std::int64_t i = 0; i < rows * pairs; ++i) {
    cosines.push_back(std::cos(static_cast<float>(i) + 0.5f));
    sines.push_back(std::sin(static_cast<float>(i) + 0.5f));
  }
  const auto run = [=](const Values& x) {
    const DeviceMatrix y = on_device(x, rows);
    const Buffer cos = Buffer::of(std::span<const float>(cosines)),
                 sin = Buffer::of(std::span<const float>(sines));
    rope(y.view(), cols, cos.as<float>(), sin.as<float>(), RopePairing::half, false, {});
    return y.values();
  };
  const auto reference = [=](const Row& x, std::int64_t row) {
    Row y(x.size());
    for (std::int64_t i = 0; i < pairs; ++i) {
      const auto low = static_cast<std::size_t>(i), high = static_cast<std::size_t>(i + pairs),
                 angle = static_cast<std::size_t>(row * pairs + i);
      const double c = double{cosines[angle]}, s = double{sines[angle]};
      y[low] = x[low] * c - x[high] * s;
      y[high] = x[high] * c + x[low] * s;
    }
    return y;
  };
  return {"rope", rows, cols, run, reference};
}

/// The same kind of number, and when that is finite, near.
bool agrees(double actual, double reference) {
  if (std::isnan(reference)) return std::isnan(actual);
  if (std::isinf(reference)) return actual == reference;
  return std::abs(actual - reference) <= 0.02 * std::abs(reference) + 0.05;
}

void expect_contained(const OnRows& operation, std::int64_t row, std::int64_t col, float special) {
  const std::int64_t cols = operation.cols;
  Values x = in_bf16(random_values(operation.rows * cols, 31));
  const Values clean = operation.run(x);
  x[static_cast<std::size_t>(row * cols + col)] = special;
  const Values dirty = operation.run(x);
  const auto outputs = static_cast<std::int64_t>(clean.size()) / operation.rows;
  const Row in(x.begin() + row * cols, x.begin() + (row + 1) * cols);
  const Row want = operation.reference(in, row);
  const std::string what = operation.name + " of " + std::to_string(operation.rows) + " rows, " +
                           std::to_string(special) + " at " + std::to_string(row) + ", " +
                           std::to_string(col);
  std::int64_t wrong = 0;
  for (std::int64_t c = 0; c < outputs; ++c) {
    const double y = double{dirty[static_cast<std::size_t>(row * outputs + c)]};
    if (agrees(y, want[static_cast<std::size_t>(c)])) continue;
    if (wrong++ == 0)
      ADD_FAILURE() << what << ": output " << c << " is " << y << ", where "
                    << want[static_cast<std::size_t>(c)] << " is due";
  }
  Values before = clean, after = dirty;
  const auto erase = [&](Values& v) {
    v.erase(v.begin() + row * outputs, v.begin() + (row + 1) * outputs);
  };
  erase(before), erase(after);
  expect_same_bits(after, before, what + ": other rows");
}

using SpecialValuesGpu = GpuTest;

TEST_F(SpecialValuesGpu, StayInTheirRow) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<OnRows> operations{
      norm_operation(5, 64, false),   norm_operation(5, 77, false),
      norm_operation(3, 5000, false), norm_operation(2, 20'000, false),
      norm_operation(5, 64, true),    norm_operation(3, 5000, true),
      softmax_operation(5, 96),       softmax_operation(3, 9000),
      rope_operation(5, 64),          packed_operation(5, 40, 64),
      packed_operation(40, 40, 64),
  };
  std::size_t products = 0;
  for (const std::int64_t rows : {5, 16, 300}) {
    std::vector<LinearPath> paths;
    for (const LinearPlan& plan : linear_candidates({.m = rows, .n = 64, .k = 256}, false)) {
      if (std::find(paths.begin(), paths.end(), plan.path) == paths.end())
        paths.push_back(plan.path);
    }
    products += paths.size();
    for (const LinearPath path : paths)
      operations.push_back(product_operation(rows, 64, 256, path));
  }
  EXPECT_GE(products, 4u);  // the library's and ours
  for (const OnRows& operation : operations) {
    for (const float special : {std::nanf(""), inf, -inf}) {
      expect_contained(operation, 0, 0, special);
      expect_contained(operation, operation.rows - 1, operation.cols - 1, special);
      expect_contained(operation, operation.rows / 2, operation.cols / 3, special);
    }
  }
}

// Gradients of one packed row say nothing about another's.
TEST_F(SpecialValuesGpu, GradientsOfAttentionStayInTheirSequence) {
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 64, .scale = 0.125f};
  const std::vector<std::int32_t> offsets{0, 70, 140};
  const std::int64_t tokens = offsets.back();
  const AttentionPlan forward = plan_attention(shape, offsets);
  const AttentionBackwardPlan backward = plan_attention_backward(shape, offsets);
  const DeviceMatrix q = on_device(random_values(tokens * 128, 1), tokens),
                     k = on_device(random_values(tokens * 64, 2), tokens),
                     v = on_device(random_values(tokens * 64, 3), tokens);
  const auto gradients = [&](float special) {
    Values slopes = random_values(tokens * 128, 4);
    if (special != 0.0f) slopes[60 * 128 + 3] = special;
    const DeviceMatrix dout = on_device(slopes, tokens), out(tokens, 128, DType::bf16),
                       dq(tokens, 128, DType::bf16), dk(tokens, 64, DType::bf16),
                       dv(tokens, 64, DType::bf16);
    const Buffer lse(static_cast<std::size_t>(tokens) * 2 * sizeof(float)),
        room(forward.workspace_bytes()), back(backward.workspace_bytes());
    upload(forward, room.workspace(), {});
    upload(backward, back.workspace(), {});
    attention(forward, q.view(), k.view(), v.view(), out.view(), lse.as<float>(), room.workspace(),
              {});
    attention_backward(backward, {q.view(), k.view(), v.view(), out.view(), lse.as<float>()},
                       dout.view(), dq.view(), dk.view(), dv.view(), back.workspace(), {});
    return std::vector<Values>{dq.values(), dk.values(), dv.values()};
  };
  const std::vector<Values> clean = gradients(0);
  for (const float special : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const std::vector<Values> dirty = gradients(special);
    for (std::size_t i = 0; i < clean.size(); ++i) {
      const auto half = static_cast<std::ptrdiff_t>(clean[i].size() / 2);
      expect_same_bits(Values(dirty[i].begin() + half, dirty[i].end()),
                       Values(clean[i].begin() + half, clean[i].end()), "the other sequence");
    }
    EXPECT_TRUE(std::isnan(dirty[0][60 * 128 + 3])) << "dq of the token itself";
    EXPECT_FALSE(std::isfinite(dirty[1][3])) << "dk of a token before it";
    EXPECT_FALSE(std::isfinite(dirty[2][3])) << "dv of a token before it";
  }
}

// A norm's gradient of a bad row is bad; those of others, and only the weights' sums, see it.
TEST_F(SpecialValuesGpu, GradientsOfNormsStayInTheirRow) {
  constexpr std::int64_t rows = 6, cols = 768;
  const DeviceMatrix x = on_device(random_values(rows * cols, 1), rows),
                     weight = on_device(random_values(cols, 2), 1);
  const Buffer inv = Buffer::of(std::span<const float>(Values(rows, 1.0f)));
  const auto gradient = [&](float special) {
    Values slopes = random_values(rows * cols, 3);
    if (special != 0.0f) slopes[2 * cols + 5] = special;
    const DeviceMatrix dy = on_device(slopes, rows), dx(rows, cols, DType::bf16);
    const Buffer dweight = Buffer::of(std::span<const float>(Values(cols, 0.0f))),
                 room(norm_backward_workspace(rows, cols));
    rmsnorm_backward(x.view(), weight.view(), inv.as<float>(), dy.view(), {}, dx.view(),
                     dweight.as<float>(), room.workspace(), {});
    return std::pair{dx.values(), dweight.values<float>()};
  };
  const auto clean = gradient(0), dirty = gradient(std::nanf(""));
  for (std::size_t i = 0; i < clean.first.size(); ++i) {
    const bool bad = i / cols == 2;
    ASSERT_EQ(std::isnan(dirty.first[i]), bad) << i;
    if (!bad) {
      ASSERT_EQ(dirty.first[i], clean.first[i]) << i;
    }
  }
  for (std::size_t c = 0; c < cols; ++c)
    ASSERT_EQ(std::isnan(dirty.second[c]), c == 5) << "weight " << c;
}

TEST_F(SpecialValuesGpu, AStepKeepsThemInTheirElement) {
  constexpr std::int64_t n = 40;
  Values gradient = random_values(n, 1);
  gradient[7] = std::nanf("");
  gradient[20] = std::numeric_limits<float>::infinity();
  const DeviceMatrix w = DeviceMatrix::of(random_values(n, 2), 1, n, DType::f32),
                     g = DeviceMatrix::of(gradient, 1, n, DType::f32);
  const Buffer first = Buffer::of(std::span<const float>(Values(n, 0.1f))),
               second = Buffer::of(std::span<const float>(Values(n, 0.1f))),
               norm(2 * sizeof(float)), room(gradient_norm_workspace(std::vector{g.view()}) + 256);
  adamw({.weight = w.view(),
         .gradient = g.view(),
         .first = first.as<float>(),
         .second = second.as<float>()},
        at_step({.rate = 0.01f}, 1), nullptr, {});
  gradient_norm(std::vector{g.view()}, 1.0f, norm.as<float>(), room.workspace(), {});
  const Values after = w.values();
  for (std::size_t i = 0; i < after.size(); ++i)
    ASSERT_EQ(std::isfinite(after[i]), i != 7 && i != 20) << i;
  EXPECT_TRUE(std::isnan(norm.values<float>()[0]));
}

}  // namespace
}  // namespace rose::kernels::gpu
