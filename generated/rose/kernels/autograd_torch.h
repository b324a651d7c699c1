// Record an operation of ours in LibTorch's graph.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>
#include <vector>

/// Operations on tensors, with gradients: those of rose::kernels, on the CPU or a GPU, wherever the tensors are.
namespace rose::kernels::autograd {

using Tensors = std::vector<at::Tensor>;

/// What the way back is given.
struct Arrived {
  Tensors saved;
  Tensors gradients;         ///< of each output; undefined where nothing arrived
  std::vector<bool> needed;  ///< of each input, whether its gradient is wanted
};
/// Returns the gradient of each input, undefined where it is not needed. Holds no tensors.
using Backward = std::function<Tensors(const Arrived&)>;

/// What an operation leaves behind.
struct Step {
  Tensors outputs;
  Tensors
      saved;  ///< inputs, outputs or others; changing one in place before the way back is an error
  Backward backward;
};

/// Runs `forward`, without recording what it calls, and returns its outputs, which lead back to `inputs` when one of them asks for
/// a gradient. Inputs are defined tensors. The name is used in errors.
Tensors record(std::string_view name, const Tensors& inputs, const std::function<Step()>& forward);

/// Whether the result of an operation on these will be asked for gradients.
bool wants_gradient(const Tensors& inputs);
/// Throws core::Error (unsupported) if so: for operations that have no way back.
void refuse_gradient(std::string_view name, const Tensors& inputs);

}  // namespace rose::kernels::autograd
