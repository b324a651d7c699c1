// Draw, go forward, go back, update.

#include "rose/trainer/trainer.h"

#include <algorithm>
#include <utility>

#include "rose/kernels/cross_entropy.h"

namespace rose::trainer {

Trainer::Trainer(std::shared_ptr<model::WeightSet> weights, const TrainerOptions& options,
                 core::ThreadPool& pool)
    : weights_(std::move(weights)),
      options_(options),
      pool_(pool),
      optimizer_(*weights_, options.optimizer),
      gradients_(*weights_),
      forward_work_(weights_->config(), pool),
      backward_work_(weights_->config(), pool) {}

// The loss of a batch, and its gradients.
double Trainer::forward_backward(std::span<const std::int32_t> ids,
                                 std::span<const std::int32_t> targets, bool train) {
  const model::Config& config = weights_->config();
  const auto context = static_cast<std::size_t>(options_.context), tokens = ids.size();
  positions_.resize(tokens);
  offsets_.resize(tokens / context + 1);
  for (std::size_t t = 0; t < tokens; ++t) positions_[t] = static_cast<std::int32_t>(t % context);
  for (std::size_t b = 0; b < offsets_.size(); ++b)
    offsets_[b] = static_cast<std::int32_t>(b * context);
  const auto c = static_cast<std::size_t>(config.hidden),
             v = static_cast<std::size_t>(config.vocab_size);
  constexpr std::size_t kRows = 512;
  hidden_.resize(tokens * c);
  d_hidden_.resize(tokens * c);
  losses_.resize(tokens);
  logits_.resize(std::min(tokens, kRows) * v);

  const model::Batch batch{ids, positions_, offsets_};
  model::forward(*weights_, batch, nullptr, train ? &saved_ : nullptr, forward_work_, hidden_);
  for (std::size_t r = 0; r < tokens; r += kRows) {
    const std::size_t rows = std::min(kRows, tokens - r);
    const auto count = static_cast<std::int64_t>(rows);
    const auto hidden = std::span<const float>(hidden_).subspan(r * c, rows * c);
    const auto scores = std::span<float>(logits_).first(rows * v);
    model::logits(*weights_, hidden, count, forward_work_, scores);
    kernels::cross_entropy(scores, count, targets.subspan(r, rows),
                           1.0f / static_cast<float>(tokens),
                           std::span<float>(losses_).subspan(r, rows), pool_, scratch_);
    if (!train) continue;
    model::head_backward(*weights_, hidden, count, scores,
                         std::span<float>(d_hidden_).subspan(r * c, rows * c), gradients_,
                         backward_work_);
  }
  if (train) model::backward(*weights_, batch, saved_, d_hidden_, gradients_, backward_work_);
  double sum = 0.0;
  for (const float loss : losses_) sum += static_cast<double>(loss);
  return sum / static_cast<double>(tokens);
}

// One step of training.
StepResult Trainer::step(std::span<const std::int32_t> tokens) {
  const std::int64_t done = optimizer_.steps();
  draw_windows(tokens, options_.batch, options_.context, options_.seed,
               static_cast<std::uint64_t>(done), windows_);
  gradients_.zero();
  StepResult result;
  result.step = done + 1;
  result.loss = forward_backward(windows_.ids, windows_.targets, true);
  result.gradient_norm = global_norm(gradients_.all(), *weights_, pool_);
  result.rate = options_.schedule.rate(done);
  const bool clip = options_.clip > 0.0 && result.gradient_norm > options_.clip;
  const double scale = clip ? options_.clip / result.gradient_norm : 1.0;
  optimizer_.step(*weights_, gradients_, static_cast<float>(result.rate), static_cast<float>(scale),
                  pool_);
  return result;
}

// The loss on held-out text.
double Trainer::evaluate(std::span<const std::int32_t> tokens, std::int64_t windows) {
  const auto context = static_cast<std::size_t>(options_.context);
  if (tokens.size() < context + 1) return 0.0;
  const std::size_t available = (tokens.size() - 1) / context;
  const std::size_t count = std::min(available, static_cast<std::size_t>(windows));
  Windows chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const auto window = tokens.subspan(i * available / count * context, context + 1);
    chosen.ids.insert(chosen.ids.end(), window.begin(), window.end() - 1);
    chosen.targets.insert(chosen.targets.end(), window.begin() + 1, window.end());
  }
  return forward_backward(chosen.ids, chosen.targets, false);
}

}  // namespace rose::trainer
