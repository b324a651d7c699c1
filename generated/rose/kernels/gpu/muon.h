// Update matrices by Muon, on a GPU.

#pragma once

#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/optimizer.h"
#include "rose/kernels/muon.h"

namespace rose::kernels::gpu {

/// A weight matrix and what belongs to it. `first` is the momentum; `second` is not used.
using MuonParameter = AdamWParameter;

/// How a matrix of this shape is updated: its products, and where everything lies in the workspace.
struct MuonPlan {
  std::int64_t rows = 0, cols = 0;
  LinearPlan gram = {}, square = {}, move = {};
  std::size_t workspace_bytes = 0;
};

/// With `plans`, products are planned once for all matrices of a shape.
MuonPlan plan_muon(std::int64_t rows, std::int64_t cols, LinearPlans* plans = nullptr);

/// The step of kernels::muon with bf16 products: the update divided by its length, A, Q and X are rounded to bf16; A A^T, Q X and
/// everything else are fp32. `scale` is in device memory, what the gradient is multiplied with; null means 1.
void muon(const MuonPlan& plan, const MuonParameter& parameter, const MuonStep& step,
          const float* scale, Workspace workspace, Stream stream);

}  // namespace rose::kernels::gpu
