// Turn a file's tensors into canonical ones.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "rose/core/error.h"
#include "rose/model/files/assemble.h"

namespace rose::model {
namespace {

using core::Code;
using core::Error;

// Hold a stored tensor against the shape that the configuration implies.
void require_fit(const ExpectedTensor& expected, const Place& place, const Stored& stored) {
  std::vector<std::int64_t> shape = expected.shape;
  shape[0] *= place.parts;
  if (place.transposed) std::swap(shape[0], shape[1]);
  const StoredTensor& tensor = stored.tensor;
  if (tensor.shape != shape) {
    throw Error(
        Code::corrupt,
        fmt::format("tensor {} has shape [{}], the model's configuration implies [{}]",
                    printable(tensor.name), fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")))
        .in(stored.where)
        .hint("weights and configuration belong to different models");
  }
  const auto dtype = tensor.dtype.value_or(kernels::DType::u8);
  const bool integer = dtype == kernels::DType::u8 || dtype == kernels::DType::i32;
  const bool blocks = !kernels::is_plain(dtype);
  if (integer || (blocks && (expected.shape.size() < 2 || place.transposed))) {
    throw Error(Code::unsupported, fmt::format("tensor {} is stored as {}, which is not supported "
                                               "for it",
                                               printable(tensor.name), tensor.type))
        .in(stored.where)
        .hint("weights in F32, F16 or BF16 can be read");
  }
}

// Copy rows, or columns, into the order that we want.
struct Buffer {
  std::shared_ptr<std::byte[]> bytes;
  std::byte* at;
};

Buffer allocate(std::size_t size) {
  auto bytes = std::make_shared<std::byte[]>(std::max<std::size_t>(size, 1));
  return {bytes, bytes.get()};
}

/// [in, parts * out] -> [out, in], elements of `size` bytes.
void transpose_part(const std::byte* from, std::byte* to, std::int64_t in, std::int64_t out,
                    const Place& place, std::size_t size) {
  const std::int64_t stride = out * place.parts, first = out * place.part;
  constexpr std::int64_t tile = 32;  // both sides stay within the cache
  for (std::int64_t i0 = 0; i0 < in; i0 += tile) {
    for (std::int64_t o0 = 0; o0 < out; o0 += tile) {
      for (std::int64_t o = o0; o < std::min(out, o0 + tile); ++o) {
        for (std::int64_t i = i0; i < std::min(in, i0 + tile); ++i) {
          std::memcpy(to + static_cast<std::size_t>(o * in + i) * size,
                      from + static_cast<std::size_t>(i * stride + first + o) * size, size);
        }
      }
    }
  }
}

/// Undoes the interleaving of rotary pairs. A row is moved whole, so its encoding does not matter.
void unpair_rows(const std::byte* from, std::byte* to, std::int64_t rows, std::int64_t heads,
                 std::size_t row_size) {
  const std::int64_t head_dim = rows / heads;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / head_dim;
    const std::int64_t source = head * head_dim + paired_row(row % head_dim, head_dim);
    std::memcpy(to + static_cast<std::size_t>(row) * row_size,
                from + static_cast<std::size_t>(source) * row_size, row_size);
  }
}

// Take one canonical tensor out of a file, in place if possible.
std::size_t alignment_of(kernels::DType dtype) {
  return dtype == kernels::DType::f32 ? 4 : 2;
}

TensorInfo take(const ExpectedTensor& expected, const Place& place, const Stored& stored) {
  require_fit(expected, place, stored);
  const StoredTensor& source = stored.tensor;
  TensorInfo tensor;
  tensor.name = expected.name;
  tensor.shape = expected.shape;
  tensor.dtype = *source.dtype;
  tensor.bytes = source.bytes.size() / static_cast<std::size_t>(place.parts);
  tensor.data = source.bytes.data();
  tensor.owner = stored.owner;
  const std::int64_t rows = expected.shape[0];
  if (place.transposed) {
    const Buffer out = allocate(tensor.bytes);
    transpose_part(source.bytes.data(), out.at, expected.shape[1], rows, place,
                   kernels::row_bytes(tensor.dtype, 1));
    tensor.data = out.at;
    tensor.owner = out.bytes;
    return tensor;
  }
  tensor.data += static_cast<std::size_t>(place.part) * tensor.bytes;
  if (place.paired_heads > 0) {
    const Buffer out = allocate(tensor.bytes);
    unpair_rows(tensor.data, out.at, rows, place.paired_heads,
                tensor.bytes / static_cast<std::size_t>(rows));
    tensor.data = out.at;
    tensor.owner = out.bytes;
  } else if (reinterpret_cast<std::uintptr_t>(tensor.data) % alignment_of(tensor.dtype) != 0) {
    const Buffer out = allocate(tensor.bytes);
    std::memcpy(out.at, tensor.data, tensor.bytes);
    tensor.data = out.at;
    tensor.owner = out.bytes;
  }
  return tensor;
}

}  // namespace

// Take every expected tensor, and account for every stored one.
Naming hf_naming(const Config& config) {
  return {place_in_hf, is_tolerated_in_hf,
          config.family == Family::gpt2 ? "transformer." : "model."};
}

Naming gguf_naming(const Config&) {
  return {place_in_gguf, is_tolerated_in_gguf, ""};
}

std::vector<TensorInfo> assemble(const Config& config, const Naming& naming,
                                 const StoredByName& stored, const std::string& where,
                                 const PackedReader& packed) {
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string> used;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const Place place = naming.place(config, expected.name);
    std::vector<std::string> read;
    TensorInfo in_few_bits;
    in_few_bits.name = expected.name;
    in_few_bits.shape = expected.shape;
    if (packed && expected.shape.size() == 2 && packed(in_few_bits, place.name, stored, read)) {
      used.insert(read.begin(), read.end());
      tensors.push_back(std::move(in_few_bits));
      continue;
    }
    auto found = stored.find(place.name);
    if (found == stored.end() && !naming.prefix.empty() && place.name.starts_with(naming.prefix)) {
      found = stored.find(place.name.substr(naming.prefix.size()));
    }
    if (found == stored.end()) {
      throw Error(Code::corrupt, fmt::format("tensor '{}' is missing", place.name))
          .in(where)
          .hint("the checkpoint is incomplete, or its configuration belongs to another model");
    }
    used.insert(found->first);
    tensors.push_back(take(expected, place, found->second));
  }
  for (const auto& [name, extra] : stored) {
    if (used.count(name) != 0 || naming.tolerated(config, name)) continue;
    throw Error(Code::unsupported, fmt::format("tensor {} has no place in a {} of this "
                                               "configuration",
                                               printable(name), model::name(config.family)))
        .in(extra.where)
        .hint("the checkpoint is of a variant that is not supported yet");
  }
  return tensors;
}

}  // namespace rose::model
