// Train in a GPU's memory.

#include "rose/trainer/gpu_compute.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "rose/core/error.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/kernels/gpu/graph.h"

namespace rose::trainer {

// Group the parameters, and list their blocks.
GpuCompute::GpuCompute(std::shared_ptr<model::WeightSet> weights, ComputeOptions options,
                       const GpuComputeOptions& gpu)
    : weights_(std::move(weights)),
      options_(std::move(options)),
      rules_(parameter_rules(weights_->parameters(), options_.optimizer)),
      parameters_(*weights_, gpu.dtype),
      training_(parameters_, {.shape = {.tokens = gpu.tokens,
                                        .head_rows = std::min(gpu.tokens, gpu.head_rows),
                                        .dtype = gpu.dtype,
                                        .recompute = gpu.recompute},
                              .z = options_.z_loss,
                              .measured = gpu.measured,
                              .free = gpu.free}),
      total_(2 * sizeof(double)) {
  if (gpu.dtype == kernels::DType::f16) loss_scale_ = LossScale();
  if (gpu.dtype == kernels::DType::f16 && options_.optimizer.method == Method::muon) {
    throw core::Error(core::Code::unsupported, "Muon beside a copy in fp16")
        .in("precision")
        .hint("bf16 has the same size and needs no loss scale");
  }
  const model::FlatLayout& layout = parameters_.layout();
  std::size_t next = 0;
  const auto group = [&](const model::FlatTensor&) {
    const ParameterRule& rule = rules_[next++];
    if (!rule.trained || rule.method != Method::adamw) return -1;
    const auto same = [&](std::size_t p) {
      return rules_[p].decay == rule.decay && rules_[p].rate == rule.rate;
    };
    const auto found = std::ranges::find_if(groups_, same);
    const auto index = static_cast<int>(found - groups_.begin());
    if (found == groups_.end()) groups_.push_back(next - 1);
    return index;
  };
  const std::vector<kernels::gpu::FlatBlock> stepped = layout.blocks(group);
  next = 0;
  const std::vector<kernels::gpu::FlatBlock> trained =
      layout.blocks([&](const model::FlatTensor&) { return rules_[next++].trained ? 0 : -1; });
  count_ = static_cast<std::int64_t>(stepped.size());
  norm_count_ = static_cast<std::int64_t>(trained.size());
  blocks_ = kernels::gpu::Buffer::of(std::span(stepped));
  norm_blocks_ = kernels::gpu::Buffer::of(std::span(trained));
  constexpr std::size_t line = 256;
  square_sums_ = kernels::gpu::Buffer(line + kernels::gpu::flat_square_sum_workspace(norm_count_));
  moments_ = kernels::gpu::Buffer(2 * static_cast<std::size_t>(layout.size()) * sizeof(float));
  kernels::gpu::fill_bytes(moments_.data(), 0, moments_.bytes(), training_.stream());
}

// Pass, and add up on the host.
namespace {

model::GpuExamples examples_of(const MicroBatch& batch) {
  return {batch_of(batch), batch.targets, batch.weights};
}

}  // namespace

LossSum loss_sum(const MicroBatch& batch, std::span<const float> losses,
                 std::span<const float> lse_of) {
  LossSum sum;
  for (std::size_t t = 0; t < losses.size(); ++t) {
    if (batch.targets[t] < 0) continue;
    const auto weight = static_cast<double>(weight_of(batch, t)),
               lse = static_cast<double>(lse_of[t]);
    ++sum.tokens;
    sum.loss += weight * static_cast<double>(losses[t]);
    sum.z += weight * lse * lse;
    sum.weight += weight;
  }
  return sum;
}

LossSum GpuCompute::sums(const MicroBatch& batch) {
  losses_.resize(batch.ids.size());
  lse_.resize(batch.ids.size());
  training_.losses(losses_, lse_);
  return loss_sum(batch, losses_, lse_);
}

LossSum GpuCompute::accumulate(const MicroBatch& batch, double scale) {
  training_.accumulate(examples_of(batch),
                       static_cast<float>(scale * static_cast<double>(loss_scale_.scale())));
  return sums(batch);
}

LossSum GpuCompute::evaluate(const MicroBatch& batch) {
  training_.evaluate(examples_of(batch));
  return sums(batch);
}

void GpuCompute::logprobs(const MicroBatch& batch, std::span<float> out) {
  if (out.size() != batch.ids.size()) {
    throw core::Error(core::Code::invalid_argument, "one number for each token is needed")
        .in("logprobs");
  }
  evaluate(batch);
  for (std::size_t t = 0; t < out.size(); ++t) out[t] = batch.targets[t] < 0 ? 0.0f : -losses_[t];
}

// Measure the gradient, and step.
double GpuCompute::gradient_norm() {
  constexpr std::size_t line = 256;
  const kernels::gpu::Workspace rest{square_sums_.as<std::byte>() + line,
                                     square_sums_.bytes() - line};
  kernels::gpu::flat_square_sum(norm_blocks_.as<kernels::gpu::FlatBlock>(), norm_count_,
                                parameters_.gradients(), square_sums_.as<double>(), rest,
                                training_.stream());
  kernels::gpu::copy_to_host(total_.data(), square_sums_.data(), sizeof(double),
                             training_.stream());
  kernels::gpu::synchronize(training_.stream());
  return std::sqrt(*total_.as<double>()) / static_cast<double>(loss_scale_.scale());
}

void GpuCompute::skip() {
  if (parameters_.dtype() == kernels::DType::f16) loss_scale_.failed();
}

void GpuCompute::update(const UpdateArgs& args) {
  const std::int64_t size = parameters_.layout().size();
  const auto scale = static_cast<float>(args.scale / static_cast<double>(loss_scale_.scale()));
  std::vector<kernels::AdamWStep> steps;
  steps.reserve(groups_.size());
  for (const std::size_t p : groups_) {
    steps.push_back(adamw_step(options_.optimizer, rules_[p], args.update, args.rate));
  }
  if (!steps.empty()) {
    kernels::gpu::flat_adamw(
        blocks_.as<kernels::gpu::FlatBlock>(), count_,
        {.weight = parameters_.masters(),
         .gradient = parameters_.gradients(),
         .first = moments_.as<float>(),
         .second = moments_.as<float>() + size,
         .copy = parameters_.copy(),
         .copy_type = parameters_.copy() == nullptr ? kernels::DType::bf16 : parameters_.dtype()},
        steps, scale, training_.stream());
  }
  if (options_.optimizer.method == Method::muon) step_matrices(args, scale);
  if (parameters_.dtype() == kernels::DType::f16) loss_scale_.succeeded();
  stale_ = true;
}

void GpuCompute::step_matrices(const UpdateArgs& args, float factor) {
  const std::span<const model::FlatTensor> tensors = parameters_.layout().tensors();
  auto* const scale = reinterpret_cast<float*>(square_sums_.as<double>() + 1);
  *total_.as<float>(sizeof(double)) = factor;
  kernels::gpu::copy_to_device(scale, total_.as<float>(sizeof(double)), sizeof(float),
                               training_.stream());
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    if (!rules_[p].trained || rules_[p].method != Method::muon) continue;
    const std::int64_t rows = tensors[p].shape[0], cols = tensors[p].shape[1];
    const kernels::gpu::MuonPlan plan = kernels::gpu::plan_muon(rows, cols, &muon_plans_);
    if (muon_scratch_.bytes() < plan.workspace_bytes) {
      kernels::gpu::synchronize(training_.stream());
      muon_scratch_ = kernels::gpu::Buffer(plan.workspace_bytes);
    }
    const auto at = [&](float* all) { return all + tensors[p].first; };
    kernels::gpu::MuonParameter parameter{
        .weight = {at(parameters_.masters()), kernels::DType::f32, rows, cols},
        .gradient = {at(parameters_.gradients()), kernels::DType::f32, rows, cols},
        .first = at(moments_.as<float>())};
    if (parameters_.copy() != nullptr) {
      parameter.copy = {static_cast<std::uint16_t*>(parameters_.copy()) + tensors[p].first,
                        parameters_.dtype(), rows, cols};
    }
    kernels::gpu::muon(plan, parameter, muon_step(options_.optimizer, rules_[p], args.rate), scale,
                       muon_scratch_.workspace(), training_.stream());
  }
}

// Show the state, and bring the weights home.
const model::WeightSet& GpuCompute::weights() {
  if (!stale_) return *weights_;
  kernels::gpu::synchronize(training_.stream());
  for (const model::FlatTensor& tensor : parameters_.layout().tensors()) {
    parameters_.download(tensor, weights_->parameter(tensor.name).f32());
  }
  weights_->set_version(weights_->version() + 1);
  stale_ = false;
  return *weights_;
}

DeviceInfo gpu_device(kernels::DType dtype) {
  const kernels::gpu::DeviceInfo device = kernels::gpu::device_info();
  const kernels::gpu::DeviceMemory memory = kernels::gpu::device_memory();
  constexpr int hopper = 90;
  constexpr double dense = 989e12;  // bf16, by the vendor's data sheet, at the highest clock
  const bool known = device.capability == hopper && dtype != kernels::DType::f32;
  return {.name = device.name,
          .peak_flops = known ? dense : 0.0,
          .memory_used = static_cast<std::int64_t>(memory.total - memory.free),
          .memory_total = static_cast<std::int64_t>(memory.total)};
}

DeviceInfo GpuCompute::device() const {
  return gpu_device(parameters_.dtype());
}

void GpuCompute::visit(const std::function<void(const StateTensor&)>& visitor) {
  const auto size = static_cast<std::size_t>(parameters_.layout().size());
  const auto show = [&](const char* role, const model::FlatTensor& tensor, kernels::gpu::Buffer* of,
                        std::size_t first) {
    StateTensor shown;
    shown.role = role;
    shown.name = tensor.name;
    shown.shape = tensor.shape;
    shown.bytes = static_cast<std::size_t>(tensor.elements) * sizeof(float);
    const std::size_t at = (first + static_cast<std::size_t>(tensor.first)) * sizeof(float);
    const auto fits = [role, &tensor](std::size_t bytes) {
      if (bytes == static_cast<std::size_t>(tensor.elements) * sizeof(float)) return;
      throw core::Error(core::Code::invalid_argument, "a state tensor has another size")
          .in(std::string(role) + " " + tensor.name);
    };
    shown.read = [this, of, at, fits, &tensor](std::span<std::byte> to) {
      fits(to.size());
      kernels::gpu::synchronize(training_.stream());
      if (of != nullptr) return of->download(to, at);
      parameters_.download(tensor,
                           {reinterpret_cast<float*>(to.data()), to.size() / sizeof(float)});
    };
    shown.write = [this, of, at, fits, &tensor](std::span<const std::byte> from) {
      fits(from.size());
      kernels::gpu::synchronize(training_.stream());
      if (of != nullptr) return of->upload(from, at);
      parameters_.upload(
          tensor, {reinterpret_cast<const float*>(from.data()), from.size() / sizeof(float)});
      parameters_.refresh(training_.stream());
      stale_ = true;
    };
    visitor(shown);
  };
  const std::span<const model::FlatTensor> tensors = parameters_.layout().tensors();
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    show("weight", tensors[p], nullptr, 0);
    if (!rules_[p].trained) continue;
    show("first", tensors[p], &moments_, 0);
    if (rules_[p].method == Method::adamw) show("second", tensors[p], &moments_, size);
  }
  if (parameters_.dtype() != kernels::DType::f16) return;
  StateTensor shown;
  shown.role = "loss_scale", shown.name = "loss_scale", shown.shape = {2};
  shown.bytes = 2 * sizeof(float);
  shown.read = [this](std::span<std::byte> to) {
    const std::array<float, 2> now{loss_scale_.scale(), static_cast<float>(loss_scale_.good())};
    std::memcpy(to.data(), now.data(), std::min(to.size(), sizeof now));
  };
  shown.write = [this](std::span<const std::byte> from) {
    std::array<float, 2> now{};
    std::memcpy(now.data(), from.data(), std::min(from.size(), sizeof now));
    loss_scale_.restore(now[0], static_cast<std::int64_t>(now[1]));
  };
  visitor(shown);
}

}  // namespace rose::trainer
