// Go back through a model with an adapter.

#pragma once

#include <span>

#include "rose/model/adapter.h"
#include "rose/model/backward.h"

namespace rose::model {

/// As backward(), for a batch that was computed with one adapter for all sequences. Adds the adapter's gradient into
/// `changes`, which has its shape, and those of the weights that `gradients` has windows for.
void backward(const WeightSet& weights, const Adapter& adapter, const Batch& batch,
              const Saved& saved, std::span<const float> d_hidden, Gradients& gradients,
              Adapter& changes, BackwardWorkspace& workspace);

/// An adapter of the same shape, all zero.
Adapter zeros_like(const Adapter& adapter);

}  // namespace rose::model
