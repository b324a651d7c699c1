// Write one stored tensor from its canonical parts.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "rose/core/error.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/write_rows.h"

namespace rose::model {

// Group canonical tensors by the tensor that will hold them.
std::vector<Recipe> plan(const Config& config, const std::vector<TensorInfo>& tensors,
                         Place (*place)(const Config&, std::string_view)) {
  std::vector<Recipe> recipes;
  std::unordered_map<std::string, std::size_t> by_name;
  for (const TensorInfo& tensor : tensors) {
    const Place at = place(config, tensor.name);
    const auto [known, fresh] = by_name.emplace(at.name, recipes.size());
    if (fresh) {
      recipes.push_back({{at.name, tensor.dtype, tensor.shape}, at, {}});
      std::vector<std::int64_t>& shape = recipes.back().target.shape;
      shape[0] *= at.parts;
      if (at.transposed) std::swap(shape[0], shape[1]);
    }
    recipes[known->second].parts.push_back(&tensor);
  }
  return recipes;
}

namespace {

// Encode a row, or say which weight cannot be held.
void encode(const Recipe& recipe, const std::vector<float>& row, std::vector<std::byte>& out) {
  const kernels::DType dtype = recipe.target.dtype;
  try {
    kernels::quantize_row(dtype, row.data(), out.data(), static_cast<std::int64_t>(row.size()));
  } catch (core::Error& error) {
    throw core::Error(error.code(), error.message()).in(recipe.target.name).hint(error.hint());
  }
  if (dtype != kernels::DType::f16) return;
  const auto lost = std::find_if(row.begin(), row.end(), [](float x) {
    return std::isfinite(x) && !std::isfinite(kernels::to_float(kernels::to_f16(x)));
  });
  if (lost == row.end()) return;
  throw core::Error(core::Code::out_of_range,
                    fmt::format("a weight of {} is beyond half precision", *lost))
      .in(recipe.target.name)
      .hint("convert to bf16 or f32");
}

// Find the canonical row behind a row of the target.
struct Source {
  const TensorInfo* tensor;
  std::int64_t row;
};

std::int64_t columns(const TensorInfo& tensor) {
  return tensor.shape.size() > 1 ? tensor.shape.back() : 1;
}

std::size_t row_size(const TensorInfo& tensor) {
  return kernels::row_bytes(tensor.dtype, columns(tensor));
}

const std::byte* row_of(const TensorInfo& tensor, std::int64_t row) {
  return tensor.data + static_cast<std::size_t>(row) * row_size(tensor);
}

/// Inverse of reading: the canonical row that lies at row `row` of the target.
Source source_of(const Recipe& recipe, std::int64_t row) {
  const std::int64_t rows = recipe.parts.front()->shape[0];
  const TensorInfo* part = recipe.parts[static_cast<std::size_t>(row / rows)];
  row %= rows;
  if (recipe.place.paired_heads > 0) {
    const std::int64_t head_dim = rows / recipe.place.paired_heads, half = head_dim / 2;
    const std::int64_t head = row / head_dim, in_head = row % head_dim;
    row = head * head_dim + in_head % 2 * half + in_head / 2;
  }
  return {part, row};
}

}  // namespace

// Stream the rows.
void write_rows(const Recipe& recipe, const std::function<void(std::span<const std::byte>)>& sink) {
  const TensorInfo& first = *recipe.parts.front();
  const std::int64_t width = columns(first) * (recipe.place.transposed ? 0 : 1);
  const std::int64_t parts = static_cast<std::int64_t>(recipe.parts.size());
  std::vector<float> row;
  std::vector<std::byte> out;
  if (recipe.place.transposed) {
    // Gather the columns of a transposed tensor.
    const std::int64_t rows = first.shape[0], cols = first.shape[1];
    std::vector<float> all(static_cast<std::size_t>(rows * cols * parts));
    for (std::int64_t part = 0; part < parts; ++part) {
      const TensorInfo& tensor = *recipe.parts[static_cast<std::size_t>(part)];
      for (std::int64_t r = 0; r < rows; ++r) {
        kernels::dequantize_row(tensor.dtype, row_of(tensor, r),
                                all.data() + static_cast<std::size_t>((part * rows + r) * cols),
                                cols);
      }
    }
    row.resize(static_cast<std::size_t>(rows * parts));
    out.resize(kernels::row_bytes(recipe.target.dtype, rows * parts));
    for (std::int64_t c = 0; c < cols; ++c) {
      for (std::size_t r = 0; r < row.size(); ++r) {
        row[r] = all[r * static_cast<std::size_t>(cols) + static_cast<std::size_t>(c)];
      }
      encode(recipe, row, out);
      sink(out);
    }
    return;
  }
  row.resize(static_cast<std::size_t>(width));
  out.resize(kernels::row_bytes(recipe.target.dtype, width));
  for (std::int64_t r = 0; r < first.shape[0] * parts; ++r) {
    const auto [tensor, from] = source_of(recipe, r);
    if (tensor->dtype == recipe.target.dtype) {
      sink({row_of(*tensor, from), row_size(*tensor)});
    } else {
      kernels::dequantize_row(tensor->dtype, row_of(*tensor, from), row.data(), width);
      encode(recipe, row, out);
      sink(out);
    }
  }
}

}  // namespace rose::model
