// Time the backward pass, after checking it.

#pragma once

#include "labs/gpu/attention_bench.inl"
#include "rose/kernels/gpu/attention_backward.h"

namespace rose::labs {

// The gradients of a batch, and a few rows of dq in double precision.
struct AttentionBackwardBench {
  AttentionBench b;
  gpu::Buffer dout = b.random(b.heads, 4), dq = b.random(b.heads, 5), dk = b.random(b.kv_heads, 6),
              dv = b.random(b.kv_heads, 7);
  gpu::AttentionBackwardPlan plan = gpu::plan_attention_backward(b.shape(), b.offsets());
  gpu::Buffer workspace{plan.workspace_bytes()};

  void operator()(gpu::Stream stream) const {
    gpu::attention_backward(
        plan,
        {b.matrix(b.q, b.heads), b.matrix(b.k, b.kv_heads), b.matrix(b.v, b.kv_heads),
         b.matrix(b.out, b.heads), b.lse.as<float>()},
        b.matrix(dout, b.heads), b.matrix(dq, b.heads), b.matrix(dk, b.kv_heads),
        b.matrix(dv, b.kv_heads), workspace.workspace(), stream);
  }

  // One row of dq in double precision.
  static double at(const std::vector<std::uint16_t>& bits, std::int64_t index) {
    return static_cast<double>(
        kernels::to_float(kernels::bf16{bits[static_cast<std::size_t>(index)]}));
  }
  struct Inputs {
    std::vector<std::uint16_t> q, k, v, g;
  };
  std::vector<double> row_of_dq(const Inputs& in, std::int64_t t, std::int64_t h) const {
    const std::int64_t first = t / b.length * b.length, kv = h / (b.heads / b.kv_heads);
    const std::int64_t row = (t * b.heads + h) * b.head_dim;
    const auto scale = static_cast<double>(b.shape().scale);
    std::vector<double> p, dp, o(static_cast<std::size_t>(b.head_dim));
    double sum = 0, delta = 0;
    for (std::int64_t j = first; j <= t; ++j) {
      const std::int64_t key = (j * b.kv_heads + kv) * b.head_dim;
      double s = 0, x = 0;
      for (std::int64_t d = 0; d < b.head_dim; ++d) {
        s += at(in.q, row + d) * at(in.k, key + d);
        x += at(in.g, row + d) * at(in.v, key + d);
      }
      p.push_back(std::exp(s * scale));
      dp.push_back(x);
      sum += p.back();
      delta += p.back() * x;
    }
    delta /= sum;
    for (std::size_t j = 0; j < p.size(); ++j) {
      const double ds = p[j] / sum * (dp[j] - delta) * scale;
      const std::int64_t key =
          ((first + static_cast<std::int64_t>(j)) * b.kv_heads + kv) * b.head_dim;
      for (std::int64_t d = 0; d < b.head_dim; ++d) {
        o[static_cast<std::size_t>(d)] += ds * at(in.k, key + d);
      }
    }
    return o;
  }
  // The relative error of some rows, drawn at random.
  double error(int rows) const {
    const Inputs in{b.q.values<std::uint16_t>(), b.k.values<std::uint16_t>(),
                    b.v.values<std::uint16_t>(), dout.values<std::uint16_t>()};
    const auto got = dq.values<std::uint16_t>();
    core::Rng rng(11);
    double error = 0, norm = 0;
    for (int r = 0; r < rows; ++r) {
      const std::int64_t t = rng.below(static_cast<std::uint32_t>(b.tokens)),
                         h = rng.below(static_cast<std::uint32_t>(b.heads));
      const std::vector<double> want = row_of_dq(in, t, h);
      for (std::int64_t d = 0; d < b.head_dim; ++d) {
        const double x = want[static_cast<std::size_t>(d)],
                     e = at(got, (t * b.heads + h) * b.head_dim + d) - x;
        error += e * e;
        norm += x * x;
      }
    }
    return std::sqrt(error / norm);
  }
};

// The bench of the backward pass.
inline int attention_backward_bench(int argc, char** argv, std::int64_t batch, std::int64_t length,
                                    std::int64_t heads, std::int64_t head_dim) {
  AttentionBackwardBench bench{{batch, length, heads, heads, head_dim}};
  AttentionForward(bench.b, {})({});
  gpu::upload(bench.plan, bench.workspace.workspace(), {});
  bench({});
  gpu::synchronize({});
  const double error = bench.error(16);
  constexpr double tolerance = 2e-2;
  const auto first = bench.dk.values<std::uint16_t>();
  bench({});
  gpu::synchronize({});
  bool repeats = first == bench.dk.values<std::uint16_t>();
  const auto query_bits = bench.dq.values<std::uint16_t>(),
             value_bits = bench.dv.values<std::uint16_t>();
  constexpr double five_to_two = 2.5;  // five products where the forward pass has two
  const double tera = five_to_two * bench.b.operations() / 1e6;
  const gpu::Launch launch = [&](int, gpu::Stream stream) { bench(stream); };
  const auto rate = [&] {
    return tera / gpu::time_launches(launch, {.samples = 5, .warmup = 1}).median_us;
  };
  // The other way of dividing the work: the same bits, at another rate.
  bench.plan.pairs = !bench.plan.pairs;
  const double other = rate();
  repeats = repeats && first == bench.dk.values<std::uint16_t>() &&
            query_bits == bench.dq.values<std::uint16_t>() &&
            value_bits == bench.dv.values<std::uint16_t>();
  bench.plan.pairs = !bench.plan.pairs;
  std::fprintf(stderr,
               "backward d%lld x %lld: %.1f TFLOP/s, with pairs %s %.1f; error of dq %.1e, %s\n",
               static_cast<long long>(head_dim), static_cast<long long>(length), rate(),
               bench.plan.pairs ? "off" : "on", other, error,
               repeats ? "repeats its bits" : "DOES NOT REPEAT ITS BITS");
  const boost::json::object extra{
      {"correct",
       {{"against",
         "16 rows of dq in double precision, relative norm; and the bits of a second run"},
        {"error", repeats ? error : 1.0},
        {"bound", tolerance}}},
      {"seed", 1},
      {"config",
       {{"shape", std::to_string(batch) + " rows of " + std::to_string(length) + " tokens, " +
                      std::to_string(heads) + " heads of " + std::to_string(head_dim) +
                      ", causal, bf16, deterministic"},
        {"operations", "10 length^2 head_dim per head, halved: causal"},
        {"pairs", bench.plan.pairs},
        {"other_rate", other},
        {"relative_error_dq", error},
        {"device", gpu::device_info().name},
        {"sm_mhz", gpu::read_clocks().sm_mhz}}}};
  return bench::run(
      argc, argv, {.metric = "rate", .unit = "TFLOP/s", .better = "higher", .extra = extra}, rate);
}

}  // namespace rose::labs
