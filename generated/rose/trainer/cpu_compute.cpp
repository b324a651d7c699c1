// Forward, score, back; add whole; update.

#include "rose/trainer/cpu_compute.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "rose/core/error.h"
#include "rose/kernels/adamw.h"
#include "rose/kernels/weighted_cross_entropy.h"

namespace rose::trainer {

CpuCompute::CpuCompute(std::shared_ptr<model::WeightSet> weights, ComputeOptions options,
                       core::ThreadPool& pool)
    : CpuCompute(
          std::move(weights), std::move(options), [](const model::Parameter&) { return true; },
          pool) {}

CpuCompute::CpuCompute(std::shared_ptr<model::WeightSet> weights, ComputeOptions options,
                       const std::function<bool(const model::Parameter&)>& wanted,
                       core::ThreadPool& pool)
    : weights_(std::move(weights)),
      options_(std::move(options)),
      pool_(pool),
      optimizer_(*weights_, options_.optimizer),
      gradients_(*weights_, wanted),
      forward_work_(weights_->config(), pool),
      backward_work_(weights_->config(), pool) {}

// One pass over a micro-batch.
void CpuCompute::back(const MicroBatch& batch, model::Gradients& gradients) {
  model::backward(*weights_, batch_of(batch), saved_, d_hidden_, gradients, backward_work_);
}

LossSum CpuCompute::run(const MicroBatch& batch, Pass pass, double scale,
                        model::Gradients& gradients) {
  const model::Config& config = weights_->config();
  check(batch, config.vocab_size, config.max_positions);
  const auto tokens = batch.ids.size(), c = static_cast<std::size_t>(config.hidden);
  counted_.clear(), targets_.clear();
  for (std::size_t t = 0; t < tokens; ++t) {
    if (batch.targets[t] < 0) continue;
    counted_.push_back(static_cast<std::int32_t>(t));
    targets_.push_back(batch.targets[t]);
  }
  hidden_.resize(tokens * c);
  logprobs_.resize(counted_.size());
  lse_.resize(counted_.size());
  const bool train = pass == Pass::train;
  model::forward(*weights_, input(batch), nullptr, train ? &saved_ : nullptr, forward_work_,
                 hidden_);
  if (train) d_hidden_.assign(tokens * c, 0.0f);
  head_rows(batch, counted_, pass, scale, gradients);
  if (train) back(batch, gradients);

  LossSum sum;
  sum.tokens = static_cast<std::int64_t>(counted_.size());
  for (std::size_t i = 0; i < counted_.size(); ++i) {
    const auto weight =
        static_cast<double>(weight_of(batch, static_cast<std::size_t>(counted_[i])));
    const auto lse = static_cast<double>(lse_[i]);
    sum.loss += weight * -static_cast<double>(logprobs_[i]);
    sum.z += weight * lse * lse;
    sum.weight += weight;
  }
  return sum;
}

// Score the rows that count, 512 at a time, and go back through the head.
void CpuCompute::head_rows(const MicroBatch& batch, std::span<const std::int32_t> counted,
                           Pass pass, double scale, model::Gradients& gradients) {
  const auto c = static_cast<std::size_t>(weights_->config().hidden),
             v = static_cast<std::size_t>(weights_->config().vocab_size);
  constexpr std::size_t kRows = 512;
  logits_.resize(std::min(counted.size(), kRows) * v);
  const bool all = counted.size() == batch.ids.size();
  for (std::size_t r = 0; r < counted.size(); r += kRows) {
    const std::size_t n = std::min(kRows, counted.size() - r);
    const auto count = static_cast<std::int64_t>(n);
    std::span<const float> hidden;
    std::span<float> d_hidden;
    if (all) {
      hidden = std::span<const float>(hidden_).subspan(r * c, n * c);
      if (pass == Pass::train) d_hidden = std::span<float>(d_hidden_).subspan(r * c, n * c);
    } else {
      rows_.resize(n * c), d_rows_.resize(n * c);
      for (std::size_t i = 0; i < n; ++i)
        std::memcpy(&rows_[i * c], &hidden_[static_cast<std::size_t>(counted[r + i]) * c],
                    c * sizeof(float));
      hidden = rows_, d_hidden = d_rows_;
    }
    scales_.resize(n);
    for (std::size_t i = 0; i < n; ++i)
      scales_[i] = static_cast<float>(
          scale * static_cast<double>(weight_of(batch, static_cast<std::size_t>(counted[r + i]))));
    const auto scores = std::span<float>(logits_).first(n * v);
    model::logits(*weights_, hidden, count, forward_work_, scores);
    kernels::weighted_cross_entropy(scores, count, std::span(targets_).subspan(r, n), scales_,
                                    options_.z_loss, std::span(logprobs_).subspan(r, n),
                                    std::span(lse_).subspan(r, n), pool_);
    if (pass != Pass::train) continue;
    model::head_backward(*weights_, hidden, count, scores, d_hidden, gradients, backward_work_);
    if (all) continue;
    for (std::size_t i = 0; i < n; ++i)
      std::memcpy(&d_hidden_[static_cast<std::size_t>(counted[r + i]) * c], &d_rows_[i * c],
                  c * sizeof(float));
  }
}

// Accumulate, evaluate, read log-probabilities.
void CpuCompute::zero_gradients() {
  gradients_.zero();
  empty_ = true;
}

LossSum CpuCompute::accumulate(const MicroBatch& batch, double scale) {
  if (std::exchange(empty_, false)) return run(batch, Pass::train, scale, gradients_);
  if (part_ == nullptr) part_ = std::make_unique<model::Gradients>(*weights_);
  part_->zero();
  const LossSum sum = run(batch, Pass::train, scale, *part_);
  const std::span<float> to = gradients_.all();
  const std::span<const float> from = part_->all();
  constexpr std::int64_t grain = 1 << 14;
  pool_.for_range(
      static_cast<std::int64_t>(to.size()), grain, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
          to[i] += from[i];
      });
  return sum;
}

LossSum CpuCompute::evaluate(const MicroBatch& batch) {
  return run(batch, Pass::evaluate, 0.0, gradients_);
}

void CpuCompute::logprobs(const MicroBatch& batch, std::span<float> out) {
  if (out.size() != batch.ids.size())
    throw core::Error(core::Code::invalid_argument, "one number for each token is needed")
        .in("logprobs");
  run(batch, Pass::evaluate, 0.0, gradients_);
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t i = 0; i < counted_.size(); ++i)
    out[static_cast<std::size_t>(counted_[i])] = logprobs_[i];
}

// Measure the gradient, and take a step.
double CpuCompute::gradient_norm() {
  std::vector<double> sums;
  for (std::size_t p = 0; p < optimizer_.rules().size(); ++p) {
    if (!optimizer_.rules()[p].trained) continue;
    const std::span<const float> gradient = gradients_.parameter(p);
    const std::size_t before = sums.size();
    constexpr auto block = static_cast<std::size_t>(kernels::norm_block);
    sums.resize(before + (gradient.size() + block - 1) / block);
    kernels::square_sums(gradient, std::span(sums).subspan(before), pool_);
  }
  return std::sqrt(kernels::fold_square_sums(sums));
}

void CpuCompute::update(const UpdateArgs& args) {
  optimizer_.step(*weights_, gradients_, args.update, args.rate, static_cast<float>(args.scale),
                  pool_);
  weights_->set_version(weights_->version() + 1);
}

DeviceInfo CpuCompute::device() const {
  DeviceInfo info;
  info.name = "cpu";
  const auto page = static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  info.memory_total = page * static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES));
  info.memory_used = weights_->bytes();
  info.memory_used += static_cast<std::int64_t>(sizeof(float)) * 3 * weights_->parameter_count();
  return info;
}

// Show every tensor of the state with its name.
void CpuCompute::visit(const std::function<void(const StateTensor&)>& visitor) {
  const auto show = [&](const char* role, const model::Parameter& parameter,
                        std::span<float> values) {
    if (values.empty()) return;
    StateTensor tensor;
    tensor.role = role;
    tensor.name = parameter.name;
    tensor.shape = parameter.shape;
    tensor.bytes = values.size_bytes();
    const auto fits = [role, name = parameter.name, bytes = tensor.bytes](std::size_t given) {
      if (given == bytes) return;
      throw core::Error(core::Code::invalid_argument, "a state tensor has another size")
          .in(std::string(role) + " " + name);
    };
    tensor.read = [values, fits](std::span<std::byte> to) {
      fits(to.size());
      std::memcpy(to.data(), values.data(), to.size());
    };
    tensor.write = [values, fits](std::span<const std::byte> from) {
      fits(from.size());
      std::memcpy(values.data(), from.data(), from.size());
    };
    visitor(tensor);
  };
  for (std::size_t p = 0; p < weights_->parameters().size(); ++p) {
    const model::Parameter& parameter = weights_->parameters()[p];
    show("weight", parameter, parameter.f32());
    show("first", parameter, optimizer_.first(p));
    show("second", parameter, optimizer_.second(p));
  }
}

}  // namespace rose::trainer
