// The loop.

#include "rose/trainer/loop.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <utility>

#include "rose/core/error.h"

namespace rose::trainer {

Loop::Loop(Compute& compute, BatchSource source, const LoopOptions& options)
    : compute_(compute),
      source_(std::move(source)),
      options_(options),
      losses_(static_cast<std::size_t>(options.watch.window), options.watch.threshold),
      norms_(static_cast<std::size_t>(options.watch.window), options.watch.threshold),
      batches_(static_cast<std::size_t>(options.micro_batches)) {}

// One step of any training.
StepReport Loop::step() {
  double weight = 0.0;
  for (MicroBatchBuffer& batch : batches_) {
    source_(options_.rows, options_.context, batch);
    weight += total_weight(batch.view());
  }
  StepReport report;
  report.rate = options_.rate.rate(state_.step);
  report.step = ++state_.step;
  compute_.zero_gradients();
  const double scale = weight == 0.0 ? 0.0 : 1.0 / weight;
  for (const MicroBatchBuffer& batch : batches_)
    report.sum += compute_.accumulate(batch.view(), scale);
  report.sum = compute_.complete(report.sum);
  report.gradient_norm = compute_.gradient_norm();
  judge(report);
  if (report.skipped) {
    compute_.skip();
    ++state_.skipped;
    return report;
  }
  const bool clip = options_.clip > 0.0 && report.gradient_norm > options_.clip;
  compute_.update({.update = ++state_.updates,
                   .rate = report.rate,
                   .scale = clip ? options_.clip / report.gradient_norm : 1.0});
  state_.tokens += report.sum.tokens;
  return report;
}

void Loop::judge(StepReport& report) {
  const bool finite = std::isfinite(report.sum.loss) && std::isfinite(report.gradient_norm);
  report.loss_z = losses_.push(report.sum.mean());
  report.norm_z = norms_.push(report.gradient_norm);
  report.spike = losses_.stands_out(report.loss_z) || norms_.stands_out(report.norm_z);
  report.skipped = !finite || (options_.watch.skip && report.spike);
  state_.bad_in_a_row = finite ? 0 : state_.bad_in_a_row + 1;
  if (state_.bad_in_a_row < options_.watch.give_up) return;
  throw core::Error(core::Code::internal,
                    fmt::format("the loss or its gradient was not a number in {} steps in a row",
                                state_.bad_in_a_row))
      .in(fmt::format("step {}", report.step))
      .hint(
          "the weights are still those of the last good step; lower optimizer.rate, lengthen "
          "optimizer.warmup, or look at the data from there on");
}

// What a checkpoint keeps of the loop.
LoopState Loop::state() const {
  LoopState state = state_;
  state.losses = losses_.window(), state.norms = norms_.window();
  return state;
}

void Loop::restore(const LoopState& state) {
  state_ = state;
  losses_.restore(state.losses), norms_.restore(state.norms);
}

namespace {

// JSON readers may round a number's last bit; a double's bits are an integer, and integers are exact.
core::json::array bits_of(const std::vector<double>& values) {
  core::json::array out;
  for (const double value : values) out.push_back(std::bit_cast<std::int64_t>(value));
  return out;
}

std::vector<double> from_bits(const core::json::array& array) {
  std::vector<double> out;
  for (const auto& bits : array)
    out.push_back(std::bit_cast<double>(bits.to_number<std::int64_t>()));
  return out;
}

}  // namespace

core::json::object LoopState::to_json() const {
  return {{"step", step},           {"updates", updates},
          {"skipped", skipped},     {"bad_in_a_row", bad_in_a_row},
          {"tokens", tokens},       {"losses", bits_of(losses)},
          {"norms", bits_of(norms)}};
}

LoopState LoopState::from_json(const core::json::object& json, std::string_view where) {
  LoopState state;
  state.step = core::get_int(json, "step", where);
  state.updates = core::get_int(json, "updates", where);
  state.skipped = core::get_int(json, "skipped", where);
  state.bad_in_a_row = core::get_int(json, "bad_in_a_row", where);
  state.tokens = core::get_int(json, "tokens", where);
  state.losses = from_bits(core::get_array(json, "losses", where));
  state.norms = from_bits(core::get_array(json, "norms", where));
  return state;
}

// Count the operations of a token.
double flops_per_token(const model::Config& config, std::int64_t context) {
  const auto d = [](std::int64_t x) { return static_cast<double>(x); };
  const double width = d(config.heads * config.head_dim),
               keys = d(config.kv_heads * config.head_dim);
  const double gates = config.family == model::Family::gpt2 ? 2.0 : 3.0;
  const double block = d(config.hidden) * (2 * width + 2 * keys + gates * d(config.ffn));
  const double products = d(config.layers) * block + d(config.vocab_size * config.hidden);
  return 6.0 * products + 6.0 * d(config.layers) * width * d(context);
}

}  // namespace rose::trainer
