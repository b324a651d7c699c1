// Steps of a model on a GPU, to be timed.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "labs/inference/qwen3.h"
#include "rose/core/rng.h"
#include "rose/model/files/budget.h"
#include "rose/trainer/gpu_compute.h"

namespace rose::labs {

/// GPT-2's smallest, its vocabulary rounded up to a multiple of 64 as nanoGPT does.
inline model::Config gpt2_124m() {
  model::Config c;
  c.family = model::Family::gpt2, c.norm = model::NormKind::layernorm;
  c.activation = model::Activation::gelu_tanh;
  c.vocab_size = 50304, c.layers = 12, c.heads = c.kv_heads = 12, c.head_dim = 64;
  c.hidden = 768, c.ffn = 3072, c.max_positions = 1024;
  c.tied_head = c.qkv_bias = c.o_bias = c.mlp_bias = true;
  return c;
}

/// Floating point operations to train on a token of a window of `context`: 6 for every parameter of a matrix, and attention as
/// causal attention needs it, 6 H D `context` in each layer.
inline double training_flops(const model::Config& c, std::int64_t context) {
  return 6.0 * static_cast<double>(model::matrix_parameters(c)) +
         6.0 * static_cast<double>(c.layers * c.heads * c.head_dim * context);
}

class GpuSteps {
 public:
  GpuSteps(const model::Config& config, std::int64_t rows, std::int64_t context,
           trainer::GpuComputeOptions options)
      : config_(config), context_(context) {
    options.tokens = rows * context;
    core::Rng rng(7);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t t = 0; t < context; ++t) {
        ids_.push_back(static_cast<std::int32_t>(rng.below(
            static_cast<std::uint32_t>(std::min<std::int64_t>(50257, config.vocab_size)))));
        positions_.push_back(static_cast<std::int32_t>(t));
      }
      offsets_.push_back(static_cast<std::int32_t>(ids_.size()));
    }
    targets_.assign(ids_.begin() + 1, ids_.end());
    targets_.push_back(ids_.front());
    const auto weights = std::const_pointer_cast<model::WeightSet>(random_bf16_weights(config));
    compute_ = std::make_unique<trainer::GpuCompute>(weights, trainer::ComputeOptions{}, options);
  }

  /// One whole step: gradients from zero, their norm, clipping, update. The mean loss before it.
  double step() {
    compute_->zero_gradients();
    const double tokens = static_cast<double>(ids_.size());
    const auto sum = compute_->accumulate({ids_, positions_, offsets_, targets_, {}}, 1.0 / tokens);
    const double norm = compute_->gradient_norm();
    compute_->update({.update = ++updates_, .rate = 3e-4, .scale = norm > 1 ? 1 / norm : 1.0});
    return sum.mean();
  }
  /// Tokens per second over so many steps.
  double rate(int steps) {
    const double seconds = bench::seconds([&] {
      for (int i = 0; i < steps; ++i) step();
      kernels::gpu::synchronize(compute_->training().stream());
    });
    return static_cast<double>(steps) * static_cast<double>(ids_.size()) / seconds;
  }
  double flops() const { return training_flops(config_, context_); }
  const model::Config& config() const { return config_; }
  trainer::GpuCompute& compute() { return *compute_; }
  void print_table();

 private:
  double work_of(const std::string& name) const;
  model::Config config_;
  std::int64_t context_, updates_ = 0;
  std::vector<std::int32_t> ids_, positions_, offsets_{0}, targets_;
  std::unique_ptr<trainer::GpuCompute> compute_;
};

/// Floating point operations of a class of operations in one step; 0: bound by memory.
inline double GpuSteps::work_of(const std::string& name) const {
  const auto tokens = static_cast<double>(ids_.size());
  const double head = 2.0 * static_cast<double>(config_.vocab_size * config_.hidden) * tokens;
  const double products =
      2.0 * static_cast<double>(model::matrix_parameters(config_)) * tokens - head;
  const double attention =
      2.0 * tokens *
      static_cast<double>(config_.layers * config_.heads * config_.head_dim * context_);
  if (name == "product" || name == "weight's gradient" || name == "input's gradient")
    return products;
  if (name == "head") return head;
  if (name == "head back") return 2 * head;
  if (name == "attention") return attention;
  return name == "attention back" ? 2.5 * attention : 0;
}

inline void GpuSteps::print_table() {
  kernels::gpu::Stopwatch watch;
  compute_->training().time_with(&watch);
  constexpr int samples = 3;
  double step_ms = 0, all = 0;
  std::vector<std::pair<std::string, double>> best;
  for (int i = 0; i < samples; ++i) {
    step_ms = 1e3 * bench::seconds([&] { step(); });
    const auto times = watch.milliseconds();
    if (best.empty()) best = times;
    for (std::size_t k = 0; k < times.size(); ++k)
      best[k].second = std::min(best[k].second, times[k].second);
  }
  compute_->training().time_with(nullptr);
  for (const auto& [name, ms] : best) all += ms;
  std::fprintf(stderr, "  passes %.2f ms, step %.2f ms\n", all, step_ms);
  for (const auto& [name, ms] : best) {
    const double work = work_of(name);
    std::fprintf(stderr, "  %-20s %8.3f ms %5.1f %%", name.c_str(), ms, 100 * ms / all);
    if (work > 0) std::fprintf(stderr, "  %6.1f TFLOP/s", work / ms / 1e9);
    std::fputs("\n", stderr);
  }
}

}  // namespace rose::labs
