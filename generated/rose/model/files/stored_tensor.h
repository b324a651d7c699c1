// Describe a tensor as a file stores it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/kernels/dtype.h"

namespace rose::model {

struct StoredTensor {
  std::string name;                     ///< as the file spells it
  std::string type;                     ///< as the file spells it: "BF16", "Q4_K", "I64"
  std::optional<kernels::DType> dtype;  ///< empty for types that hold no weights of ours
  std::vector<std::int64_t> shape;      ///< outermost first: rows before columns
  std::uint64_t offset = 0;             ///< of the first byte, from the start of the file
  std::span<const std::byte> bytes;     ///< in the mapped file
};

/// What a writer needs to know of a tensor before it writes the header.
struct PlannedTensor {
  std::string name;
  kernels::DType dtype = kernels::DType::f32;
  std::vector<std::int64_t> shape;
};

// Check what both formats can get wrong.

/// Elements of a shape; empty when a dimension is negative or the product exceeds 2^62.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape);

/// Bytes of the tensor in its layout; throws core::Error if rows are no whole number of blocks.
std::uint64_t byte_count(const PlannedTensor& tensor);

/// A name from a file, quoted for a message: printable, and cut after 80 bytes.
std::string printable(std::string_view name);

/// Throws core::Error naming both when two tensors share a byte. With `exact`, they must also
/// cover [begin, end) without a gap.
void require_disjoint(std::span<const StoredTensor> tensors, std::uint64_t begin, std::uint64_t end,
                      bool exact, const std::string& where);

/// Recognises what people mistake for a model file (a Git LFS pointer, a web page) and throws.
void refuse_lookalikes(std::span<const std::byte> bytes, const std::string& where);

}  // namespace rose::model
