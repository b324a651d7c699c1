// Check what both formats can get wrong.

#include <fmt/core.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/model/files/stored_tensor.h"

namespace rose::model {

using core::Code;
using core::Error;

std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape) {
  constexpr std::int64_t limit = std::int64_t{1} << 62;
  std::int64_t count = 1;
  bool empty = false;  // a zero further right must not hide an overflow further left
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty = empty || extent == 0;
    const std::int64_t factor = std::max<std::int64_t>(extent, 1);
    if (count > limit / factor) return std::nullopt;
    count *= factor;
  }
  return empty ? 0 : count;
}

std::uint64_t byte_count(const PlannedTensor& tensor) {
  const auto elements = element_count(tensor.shape);
  if (!elements) {
    throw Error(Code::out_of_range, "the number of elements overflows").in(tensor.name);
  }
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (*elements == 0) return 0;
  return static_cast<std::uint64_t>(*elements / columns) *
         kernels::row_bytes(tensor.dtype, columns);
}

// Quote a name so that it can do a terminal no harm.
std::string printable(std::string_view name) {
  constexpr std::size_t longest = 80;
  std::string out = "'";
  for (const char c : name.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (name.size() > longest ? "…'" : "'");
}

// Find two tensors that share a byte, or a byte that no tensor owns.
void require_disjoint(std::span<const StoredTensor> tensors, std::uint64_t begin, std::uint64_t end,
                      bool exact, const std::string& where) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) {
    if (!tensor.bytes.empty()) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  std::uint64_t reached = begin;
  const StoredTensor* last = nullptr;
  for (const StoredTensor* tensor : order) {
    if (tensor->offset < reached && last != nullptr) {
      throw Error(Code::corrupt,
                  fmt::format("tensors {} and {} overlap at byte {}", printable(last->name),
                              printable(tensor->name), tensor->offset))
          .in(where);
    }
    if (exact && tensor->offset != reached) {
      throw Error(Code::corrupt, fmt::format("bytes {} to {} before tensor {} belong to no tensor",
                                             reached, tensor->offset, printable(tensor->name)))
          .in(where);
    }
    reached = tensor->offset + tensor->bytes.size();
    last = tensor;
  }
  if (exact && reached != end) {
    throw Error(Code::corrupt, fmt::format("the last {} bytes belong to no tensor", end - reached))
        .in(where)
        .hint("the file was not written by a safetensors writer, or something was appended to it");
  }
}

// Recognise what is mistaken for a model file.
void refuse_lookalikes(std::span<const std::byte> bytes, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 64));
  if (bytes.empty()) {
    throw Error(Code::corrupt, "the file is empty").in(where).hint("fetch it again");
  }
  if (text.starts_with("version https://git-lfs")) {
    throw Error(Code::corrupt, "this is a Git LFS pointer, not the file that it stands for")
        .in(where)
        .hint("run `git lfs pull` in that folder");
  }
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<html")) {
    throw Error(Code::corrupt, "this is a web page, not a model file")
        .in(where)
        .hint("the download failed and its error page was saved: fetch it again");
  }
}

}  // namespace rose::model
