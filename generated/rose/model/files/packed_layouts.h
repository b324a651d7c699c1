// Read matrices that quantisation libraries have packed.

#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "rose/model/files/assemble.h"

namespace rose::model {

/// How a checkpoint is packed, as the `quantization_config` of its config.json says.
struct Packing {
  enum class Layout : std::uint8_t { gptq, awq, compressed, bytes };

  Layout layout = Layout::gptq;
  int bits = 4;
  std::int64_t group = 0;       ///< columns that share a scale; 0: all of a row
  bool zeros_less_one = true;   ///< GPTQ's first format
  std::int64_t block_rows = 0;  ///< eight-bit floats with a scale for each block
  std::int64_t block_cols = 0;
  std::string name;  ///< for people: "gptq, int4 in groups of 128"
};

/// Throws core::Error (unsupported) that names what has no reader: other methods, other numbers of bits, sparsity.
Packing read_packing(const boost::json::object& quantization_config, std::string_view where);

/// A matrix whose columns were reordered (GPTQ's `desc_act`) comes as bf16, since its groups are no runs of columns.
/// What concerns activations (`input_scale`) is passed over: they stay as they are. Throws core::Error (corrupt) for arrays that do not fit.
PackedReader packed_reader(const Packing& packing);

}  // namespace rose::model
