// Time attention on a GPU, after checking it.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "rose/core/rng.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/instruments.h"

namespace rose::labs {

namespace gpu = kernels::gpu;

// A batch of causal rows in bf16, drawn at random.
struct AttentionBench {
  std::int64_t batch, length, heads, kv_heads, head_dim;
  std::int64_t tokens = batch * length;
  gpu::Buffer q = random(heads, 1), k = random(kv_heads, 2), v = random(kv_heads, 3);
  gpu::Buffer out{static_cast<std::size_t>(tokens * heads * head_dim) * 2};
  gpu::Buffer lse{static_cast<std::size_t>(tokens * heads) * 4};

  /// Random numbers are drawn for a megabyte and repeated: the kernel cannot know, and the host is slow.
  gpu::Buffer random(std::int64_t width, std::uint64_t seed) const {
    core::Rng rng(seed);
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(tokens * width * head_dim));
    const std::size_t drawn = std::min<std::size_t>(bits.size(), (1 << 20) + 7);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      bits[i] = i < drawn ? kernels::to_bf16(rng.normal()).bits : bits[i - drawn];
    }
    return gpu::Buffer::of(std::span<const std::uint16_t>(bits));
  }
  gpu::Matrix matrix(const gpu::Buffer& buffer, std::int64_t width) const {
    return {buffer.data(), kernels::DType::bf16, tokens, width * head_dim};
  }
  kernels::AttentionShape shape() const {
    return {heads, kv_heads, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim))};
  }
  std::vector<std::int32_t> offsets() const {
    std::vector<std::int32_t> rows;
    for (std::int64_t b = 0; b <= batch; ++b) rows.push_back(static_cast<std::int32_t>(b * length));
    return rows;
  }
  /// Two products of 2 length^2 head_dim operations per head, half of them below the diagonal.
  double operations() const {
    const auto n = static_cast<double>(length);
    return 2.0 * static_cast<double>(batch * heads * head_dim) * n * n;
  }
};

// Run it one way.
class AttentionForward {
 public:
  AttentionForward(const AttentionBench& bench, const gpu::AttentionOptions& options)
      : bench_(bench),
        plan_(gpu::plan_attention(bench.shape(), bench.offsets(), {}, options)),
        workspace_(plan_.workspace_bytes()) {
    gpu::upload(plan_, workspace_.workspace(), {});
    gpu::synchronize({});
  }
  void operator()(gpu::Stream stream) const {
    gpu::attention(
        plan_, bench_.matrix(bench_.q, bench_.heads), bench_.matrix(bench_.k, bench_.kv_heads),
        bench_.matrix(bench_.v, bench_.kv_heads), bench_.matrix(bench_.out, bench_.heads),
        bench_.lse.as<float>(), workspace_.workspace(), stream);
  }
  double microseconds(int samples) const {
    const gpu::Launch launch = [this](int, gpu::Stream stream) { (*this)(stream); };
    return gpu::time_launches(launch, {.samples = samples, .warmup = 1}).median_us;
  }

 private:
  const AttentionBench& bench_;
  gpu::AttentionPlan plan_;
  gpu::Buffer workspace_;
};

// Compare a few rows with double precision.

/// The norm of the error over that of the result, over `rows` of the batch.
inline double attention_error(const AttentionBench& b, int rows) {
  const auto read = [](const gpu::Buffer& buffer) { return buffer.values<std::uint16_t>(); };
  const auto q = read(b.q), k = read(b.k), v = read(b.v), out = read(b.out);
  const auto at = [&](const std::vector<std::uint16_t>& bits, std::int64_t index) {
    return static_cast<double>(
        kernels::to_float(kernels::bf16{bits[static_cast<std::size_t>(index)]}));
  };
  core::Rng rng(9);
  double error = 0, norm = 0;
  for (int r = 0; r < rows; ++r) {
    const std::int64_t t = rng.below(static_cast<std::uint32_t>(b.tokens)),
                       h = rng.below(static_cast<std::uint32_t>(b.heads)),
                       first = t / b.length * b.length, kv = h / (b.heads / b.kv_heads);
    std::vector<double> o(static_cast<std::size_t>(b.head_dim));
    double sum = 0, max = -INFINITY;
    for (std::int64_t j = first; j <= t; ++j) {
      double s = 0;
      for (std::int64_t d = 0; d < b.head_dim; ++d) {
        s += at(q, (t * b.heads + h) * b.head_dim + d) *
             at(k, (j * b.kv_heads + kv) * b.head_dim + d);
      }
      s *= static_cast<double>(b.shape().scale);
      const double top = std::max(max, s), keep = std::exp(max - top), p = std::exp(s - top);
      max = top;
      sum = sum * keep + p;
      for (std::int64_t d = 0; d < b.head_dim; ++d) {
        double& x = o[static_cast<std::size_t>(d)];
        x = x * keep + p * at(v, (j * b.kv_heads + kv) * b.head_dim + d);
      }
    }
    for (std::int64_t d = 0; d < b.head_dim; ++d) {
      const double x = o[static_cast<std::size_t>(d)] / sum,
                   e = at(out, (t * b.heads + h) * b.head_dim + d) - x;
      error += e * e;
      norm += x * x;
    }
  }
  return std::sqrt(error / norm);
}

// The bench of the forward pass: the rate, and what other splits would cost.
inline int attention_forward_bench(int argc, char** argv, std::int64_t batch, std::int64_t length,
                                   std::int64_t heads, std::int64_t head_dim) {
  const AttentionBench bench{batch, length, heads, heads, head_dim};
  const AttentionForward forward(bench, {});
  forward({});
  gpu::synchronize({});
  const double error = attention_error(bench, 32);
  constexpr double tolerance = 5e-3;
  const double tera = bench.operations() / 1e6;  // operations per microsecond to TFLOP/s
  boost::json::object rates;
  constexpr int no_split = 1 << 20;
  const auto measure = [&](const char* name, const gpu::AttentionOptions& options) {
    const double rate = tera / AttentionForward(bench, options).microseconds(5);
    const std::string splits =
        options.key_split == no_split ? "whole" : std::to_string(options.key_split);
    std::fprintf(stderr, "d%lld x %lld: %s, splits of %s: %.1f TFLOP/s\n",
                 static_cast<long long>(head_dim), static_cast<long long>(length), name,
                 splits.c_str(), rate);
    rates[std::string(name) + "_" + splits] = rate;
  };
  for (const int split : {256, 512, 1024, no_split}) {
    measure("warpgroup", {.path = gpu::AttentionPath::rows, .key_split = split});
    measure("portable", {.path = gpu::AttentionPath::rows, .key_split = split, .warpgroup = false});
  }
  measure("without_turns", {.path = gpu::AttentionPath::rows, .turns = false});
  const gpu::DeviceInfo device = gpu::device_info();
  const gpu::Clocks clocks = gpu::read_clocks();
  boost::json::object extra{
      {"correct",
       {{"against", "32 rows in double precision, relative norm"},
        {"error", error},
        {"bound", tolerance}}},
      {"seed", 1},
      {"config",
       {{"shape", std::to_string(batch) + " rows of " + std::to_string(length) + " tokens, " +
                      std::to_string(heads) + " heads of " + std::to_string(head_dim) +
                      ", causal, bf16, log-sum-exp written"},
        {"operations", "4 length^2 head_dim per head, halved: causal"},
        {"relative_error", error},
        {"device", device.name},
        {"sm_mhz", clocks.sm_mhz},
        {"rates", rates}}}};
  return bench::run(argc, argv,
                    {.metric = "rate", .unit = "TFLOP/s", .better = "higher", .extra = extra},
                    [&] { return tera / forward.microseconds(5); });
}

}  // namespace rose::labs
