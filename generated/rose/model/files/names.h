// Say where a canonical tensor lies in a foreign file.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rose/model/files/config.h"

namespace rose::model {

/// A tensor that a configuration implies, under its canonical name.
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< [out, in] for a linear weight
};

/// All of them in canonical order. Exactly these make a complete checkpoint.
std::vector<ExpectedTensor> expected_tensors(const Config& config);

/// Where a file keeps a canonical tensor, and what must be done to get it out. The same answer,
/// read backwards, says how to write it.
struct Place {
  std::string name;               ///< in the file
  int part = 0, parts = 1;        ///< which of so many equal pieces, along the out dimension
  bool transposed = false;        ///< the file keeps [in, out]
  std::int64_t paired_heads = 0;  ///< rows of so many heads are interleaved in rotary pairs

  bool operator==(const Place&) const = default;
};

Place place_in_hf(const Config& config, std::string_view canonical);
Place place_in_gguf(const Config& config, std::string_view canonical);

/// Tensors that old checkpoints carry and no model needs: causal masks, rotary tables, and the
/// copy of a tied head.
bool is_tolerated_in_hf(const Config& config, std::string_view name);
bool is_tolerated_in_gguf(const Config& config, std::string_view name);

/// The row of a file with interleaved pairs that holds canonical row `row` of a head of width
/// `head_dim`; rows of one head are numbered from 0.
constexpr std::int64_t paired_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

}  // namespace rose::model
