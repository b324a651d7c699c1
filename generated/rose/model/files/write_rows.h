// Write one stored tensor from its canonical parts.

#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rose/model/files/names.h"
#include "rose/model/files/stored_tensor.h"
#include "rose/model/files/tensor_source.h"

namespace rose::model {

/// A tensor of the target file and the canonical tensors that it is made of, in order.
struct Recipe {
  PlannedTensor target;
  Place place;  ///< of the first part
  std::vector<const TensorInfo*> parts;
};

/// Groups canonical tensors by their place in the target. The element types are the sources'.
std::vector<Recipe> plan(const Config& config, const std::vector<TensorInfo>& tensors,
                         Place (*place)(const Config&, std::string_view));

/// Hands the bytes of the stored tensor to `sink`, in order and in pieces. Throws core::Error for
/// a weight that the target type cannot hold.
void write_rows(const Recipe& recipe, const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace rose::model
