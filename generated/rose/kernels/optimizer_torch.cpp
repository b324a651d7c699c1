// Step, and raise the version.

#include "rose/kernels/optimizer_torch.h"

#include <cmath>
#include <span>
#include <vector>

#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/muon.h"
#include "rose/kernels/gpu/optimizer.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

void written(const at::Tensor& tensor) {
  tensor.unsafeGetTensorImpl()->bump_version();
}

const float* scale_of(const Site& site, const std::optional<at::Tensor>& scale) {
  return scale ? site.floats(*scale, "scale").data() : nullptr;
}

/// A matrix of one row.
gpu::Matrix row_of(const Site& site, const at::Tensor& tensor, const char* argument) {
  if (!tensor.is_contiguous()) gpu::bad_argument(argument, "it has gaps");
  return site.matrix(tensor.view({-1}), argument);
}

void check_alike(const at::Tensor& weight, const at::Tensor& other, const char* argument) {
  if (other.sizes() != weight.sizes())
    gpu::bad_argument(argument, "it is not shaped as the weight");
}

}  // namespace

// AdamW.
void adamw(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& first,
           const at::Tensor& second, const AdamWStep& step, const std::optional<at::Tensor>& scale,
           const std::optional<RoundingKey>& by_chance) {
  check_alike(weight, gradient, "gradient");
  check_alike(weight, first, "first");
  check_alike(weight, second, "second");
  const Site site(weight, "weight");
  const std::span<float> m = site.floats(first, "first"), v = site.floats(second, "second");
  const float* const factor = scale_of(site, scale);
  if (site.on_gpu()) {
    gpu::AdamWParameter parameter{.weight = row_of(site, weight, "weight"),
                                  .gradient = row_of(site, gradient, "gradient"),
                                  .first = m.data(),
                                  .second = v.data()};
    parameter.by_chance = by_chance.has_value();
    if (by_chance) parameter.key = *by_chance;
    gpu::adamw(parameter, step, factor, site.stream());
  } else {
    kernels::adamw(site.floats(weight, "weight"), site.floats(gradient, "gradient"),
                   factor == nullptr ? 1.0f : *factor, m, v, step, core::default_pool());
  }
  for (const at::Tensor& tensor : {weight, first, second}) written(tensor);
}

// Muon.
void muon(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& momentum,
          const MuonStep& step, const std::optional<at::Tensor>& scale) {
  if (weight.dim() != 2) gpu::bad_argument("weight", "a matrix is needed");
  check_alike(weight, gradient, "gradient");
  check_alike(weight, momentum, "momentum");
  const Site site(weight, "weight");
  const std::span<float> m = site.floats(momentum, "momentum");
  const float* const factor = scale_of(site, scale);
  if (site.on_gpu()) {
    const gpu::MuonPlan plan = gpu::plan_muon(weight.size(0), weight.size(1));
    const at::Tensor scratch = site.scratch(plan.workspace_bytes);
    gpu::muon(plan,
              {.weight = site.matrix(weight, "weight"),
               .gradient = site.matrix(gradient, "gradient"),
               .first = m.data()},
              step, factor, workspace_of(scratch), site.stream());
  } else {
    MuonScratch scratch;
    kernels::muon(site.floats(weight, "weight"), site.floats(gradient, "gradient"),
                  factor == nullptr ? 1.0f : *factor, m, weight.size(0), weight.size(1), step,
                  core::default_pool(), scratch);
  }
  for (const at::Tensor& tensor : {weight, momentum}) written(tensor);
}

// The length of all gradients, and rounding by chance.
at::Tensor gradient_norm(at::TensorList gradients, double limit) {
  if (gradients.empty()) gpu::bad_argument("gradients", "none");
  const Site site(gradients[0], "gradients");
  at::Tensor result = gradients[0].new_empty({2}, gradients[0].options().dtype(at::kFloat));
  const std::span<float> out = site.floats(result, "result");
  if (site.on_gpu()) {
    std::vector<gpu::Matrix> all;
    for (const at::Tensor& gradient : gradients) all.push_back(row_of(site, gradient, "gradients"));
    const at::Tensor scratch = site.scratch(gpu::gradient_norm_workspace(all));
    gpu::gradient_norm(all, static_cast<float>(limit), out.data(), workspace_of(scratch),
                       site.stream());
    return result;
  }
  std::vector<double> sums;
  for (const at::Tensor& gradient : gradients) {
    const std::span<const float> values = site.floats(gradient, "gradients");
    const std::size_t first = sums.size();
    sums.resize(first + (values.size() + norm_block - 1) / norm_block);
    square_sums(values, std::span(sums).subspan(first), core::default_pool());
  }
  out[0] = static_cast<float>(std::sqrt(fold_square_sums(sums)));
  const float factor = static_cast<float>(limit) / out[0];
  out[1] = factor < 1.0f ? factor : 1.0f;
  return result;
}

at::Tensor to_bf16_stochastic(const at::Tensor& x, const RoundingKey& key) {
  const Site site(x, "x");
  at::Tensor y = x.new_empty(x.sizes(), x.options().dtype(at::kBFloat16));
  if (site.on_gpu()) {
    gpu::cast_stochastic(row_of(site, x, "x"), key, row_of(site, y, "y"), site.stream());
  } else {
    kernels::to_bf16_stochastic(
        site.floats(x, "x"), key,
        {static_cast<bf16*>(y.mutable_data_ptr()), static_cast<std::size_t>(y.numel())},
        core::default_pool());
  }
  return y;
}

}  // namespace rose::kernels::autograd
