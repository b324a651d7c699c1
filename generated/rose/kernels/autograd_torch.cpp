// One node for every operation.

#include "rose/kernels/autograd_torch.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>
#include <utility>

#include "rose/core/error.h"

namespace rose::kernels::autograd {
namespace {

using torch::autograd::AutogradContext;

/// What a node keeps beside tensors.
struct WayBack : torch::CustomClassHolder {
  WayBack(std::string_view of, std::size_t count, Backward function)
      : name(of), inputs(count), backward(std::move(function)) {}
  std::string name;
  std::size_t inputs;
  Backward backward;
};

/// What `apply` hands on to `forward`.
struct Operation {
  std::string_view name;
  const std::function<Step()>* forward;
};

// Keep the rules in one place.
class Node : public torch::autograd::Function<Node> {
 public:
  static Tensors forward(AutogradContext* context, at::TensorList inputs,
                         const Operation& operation) {
    Step step = (*operation.forward)();
    context->set_materialize_grads(false);
    context->save_for_backward(std::move(step.saved));
    context->saved_data["way back"] = c10::IValue::make_capsule(
        c10::make_intrusive<WayBack>(operation.name, inputs.size(), std::move(step.backward)));
    return std::move(step.outputs);
  }

  // The engine hands over the gradients by value.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  static Tensors backward(AutogradContext* context, Tensors gradients) {
    const auto holder = context->saved_data["way back"].toCapsule();
    const auto& way = static_cast<const WayBack&>(*holder);
    if (at::GradMode::is_enabled()) {
      throw core::Error(core::Code::unsupported, way.name + " has no second derivative")
          .hint("call backward without create_graph");
    }
    Arrived arrived;
    arrived.saved = context->get_saved_variables();
    arrived.gradients = std::move(gradients);
    for (std::size_t i = 0; i < way.inputs; ++i) {
      arrived.needed.push_back(context->needs_input_grad(i));
    }
    const bool any = std::any_of(arrived.gradients.begin(), arrived.gradients.end(),
                                 [](const at::Tensor& gradient) { return gradient.defined(); });
    Tensors result = any ? way.backward(arrived) : Tensors(way.inputs);
    result.emplace_back();  // for the operation itself, which has no gradient
    return result;
  }
};

}  // namespace

Tensors record(std::string_view name, const Tensors& inputs, const std::function<Step()>& forward) {
  return Node::apply(at::TensorList(inputs), Operation{name, &forward});
}

bool wants_gradient(const Tensors& inputs) {
  return at::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(),
                     [](const at::Tensor& input) { return input.requires_grad(); });
}

void refuse_gradient(std::string_view name, const Tensors& inputs) {
  if (!wants_gradient(inputs)) return;
  throw core::Error(core::Code::unsupported, std::string(name) + " has no gradient here")
      .hint("call it under at::NoGradGuard, or detach() its input");
}

}  // namespace rose::kernels::autograd
