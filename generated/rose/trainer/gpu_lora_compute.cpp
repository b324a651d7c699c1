// Train an adapter on a GPU.

#include "rose/trainer/gpu_lora_compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "rose/core/error.h"

namespace rose::trainer {

// Pass, measure, step.
GpuLoraCompute::GpuLoraCompute(std::shared_ptr<model::WeightSet> weights,
                               const ComputeOptions& options, const model::AdapterOptions& adapter,
                               std::uint64_t seed, float dropout, const GpuComputeOptions& gpu)
    : weights_(std::move(weights)),
      rules_(options.optimizer),
      parameters_(*weights_, gpu.dtype, true),
      training_(parameters_, {.shape = {.tokens = gpu.tokens,
                                        .head_rows = std::min(gpu.tokens, gpu.head_rows),
                                        .dtype = gpu.dtype,
                                        .recompute = gpu.recompute},
                              .z = options.z_loss,
                              .measured = gpu.measured,
                              .free = gpu.free}),
      adapter_(weights_->config(), model::fresh_adapter(weights_->config(), adapter, seed),
               gpu.dtype, gpu.tokens),
      dropout_(lora_dropout(dropout, seed)) {
  if (adapter_.tensors().empty())
    throw core::Error(core::Code::invalid_argument, "this family has none of these matrices")
        .in("lora.targets");
  training_.stand_beside(&adapter_);
}

LossSum GpuLoraCompute::sums(const MicroBatch& batch) {
  losses_.resize(batch.ids.size());
  lse_.resize(batch.ids.size());
  training_.losses(losses_, lse_);
  return loss_sum(batch, losses_, lse_);
}

LossSum GpuLoraCompute::accumulate(const MicroBatch& batch, double scale) {
  if (dropout_.rate > 0.0f) {
    dropout_.stream = passes_.next();
    adapter_.thin(dropout_);
  }
  training_.accumulate({batch_of(batch), batch.targets, batch.weights}, static_cast<float>(scale));
  adapter_.thin({});
  return sums(batch);
}

LossSum GpuLoraCompute::evaluate(const MicroBatch& batch) {
  training_.evaluate({batch_of(batch), batch.targets, batch.weights});
  return sums(batch);
}

void GpuLoraCompute::logprobs(const MicroBatch& batch, std::span<float> out) {
  if (out.size() != batch.ids.size())
    throw core::Error(core::Code::invalid_argument, "one number for each token is needed")
        .in("logprobs");
  evaluate(batch);
  for (std::size_t t = 0; t < out.size(); ++t) out[t] = batch.targets[t] < 0 ? 0.0f : -losses_[t];
}

double GpuLoraCompute::gradient_norm() {
  return std::sqrt(adapter_.square_sum(training_.stream()));
}

void GpuLoraCompute::update(const UpdateArgs& args) {
  ParameterRule rule;
  rule.decay = rules_.weight_decay;
  adapter_.step(adamw_step(rules_, rule, args.update, args.rate), static_cast<float>(args.scale),
                training_.stream());
  merged_.reset();
}

// Show the state, and bring the adapter home.
void GpuLoraCompute::show(const std::function<void(const StateTensor&)>& visitor, const char* role,
                          model::PairArray of, const model::PairTensor& tensor) {
  StateTensor shown;
  shown.role = role, shown.name = tensor.name, shown.shape = tensor.shape;
  shown.bytes = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]) * sizeof(float);
  const auto fits = [&tensor, bytes = shown.bytes](std::size_t given) {
    if (given == bytes) return;
    throw core::Error(core::Code::invalid_argument, "a state tensor has another size")
        .in(tensor.name);
  };
  shown.read = [this, of, fits, &tensor](std::span<std::byte> to) {
    fits(to.size());
    kernels::gpu::synchronize(training_.stream());
    const std::vector<float> values = adapter_.read(of, tensor);
    std::memcpy(to.data(), values.data(), to.size());
  };
  shown.write = [this, of, fits, &tensor](std::span<const std::byte> from) {
    fits(from.size());
    std::vector<float> values(from.size() / sizeof(float));
    std::memcpy(values.data(), from.data(), from.size());
    kernels::gpu::synchronize(training_.stream());
    adapter_.write(of, tensor, values);
    merged_.reset();
  };
  visitor(shown);
}

void GpuLoraCompute::visit(const std::function<void(const StateTensor&)>& visitor) {
  if (dropout_.rate > 0.0f) passes_.visit(visitor);
  for (const model::PairTensor& tensor : adapter_.tensors()) {
    show(visitor, "weight", model::PairArray::masters, tensor);
    show(visitor, "first", model::PairArray::first, tensor);
    show(visitor, "second", model::PairArray::second, tensor);
  }
}

const model::WeightSet& GpuLoraCompute::weights() {
  if (merged_ == nullptr) {
    kernels::gpu::synchronize(training_.stream());
    merged_ = model::merged(*weights_, adapter_.adapter());
  }
  return *merged_;
}

DeviceInfo GpuLoraCompute::device() const {
  std::int64_t trained = 0;
  for (const model::PairTensor& tensor : adapter_.tensors())
    trained += tensor.shape[0] * tensor.shape[1];
  DeviceInfo info = gpu_device(parameters_.dtype());
  info.name +=
      fmt::format(", an adapter of {:.2f} million numbers", static_cast<double>(trained) / 1e6);
  return info;
}

std::function<void(const std::filesystem::path&)> GpuLoraCompute::files() {
  kernels::gpu::synchronize(training_.stream());
  return adapter_files(weights_->config(), adapter_.adapter());
}

}  // namespace rose::trainer
