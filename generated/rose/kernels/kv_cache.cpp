// Gather rows, plainly.

#include "rose/kernels/kv_cache.h"

#include <fmt/format.h>

#include <cstring>

#include "rose/core/error.h"

namespace rose::kernels {
namespace {

std::byte* bytes_at(void* base, std::int64_t offset) {
  return static_cast<std::byte*>(base) + offset;
}

[[noreturn]] void outside(const char* operation, std::string what) {
  throw core::Error(core::Code::out_of_range, std::move(what)).in(operation);
}

}  // namespace

void kv_gather(const KvView& kv, int layer, std::span<const KvPlace> places, void* k, void* v) {
  const auto element = static_cast<std::int64_t>(row_bytes(kv.dtype, 1));
  const std::int64_t bytes = kv.head_dim * element;
  std::int64_t to = 0;
  for (const KvPlace place : places) {
    for (int head = 0; head < kv.kv_heads; ++head, to += bytes) {
      if (place.position < 0) {
        std::memset(bytes_at(k, to), 0, static_cast<std::size_t>(bytes));
        std::memset(bytes_at(v, to), 0, static_cast<std::size_t>(bytes));
        continue;
      }
      if (place.position >= kv.capacity()) {
        outside("kv_gather", fmt::format("position {} of a sequence with room for {}",
                                         place.position, kv.capacity()));
      }
      const std::int32_t page =
          kv.page_table[place.sequence * kv.table_stride + place.position / kv.page_size];
      if (page < 0 || page >= kv.pages)
        outside("kv_gather", fmt::format("page {}, and the cache has {}", page, kv.pages));
      const std::int64_t from = kv.offset(layer, place.sequence, head, place.position) * element;
      std::memcpy(bytes_at(k, to), bytes_at(kv.k, from), static_cast<std::size_t>(bytes));
      std::memcpy(bytes_at(v, to), bytes_at(kv.v, from), static_cast<std::size_t>(bytes));
    }
  }
}

// Copy pages, one layer after the other.
void kv_copy_pages(const KvView& kv, std::span<const KvPageCopy> copies) {
  const auto page = static_cast<std::int64_t>(
      row_bytes(kv.dtype, static_cast<std::int64_t>(kv.kv_heads) * kv.page_size * kv.head_dim));
  for (const KvPageCopy copy : copies) {
    if (copy.from < 0 || copy.from >= kv.pages || copy.to < 0 || copy.to >= kv.pages) {
      outside("kv_copy_pages",
              fmt::format("page {} to page {} of {}", copy.from, copy.to, kv.pages));
    }
    for (int layer = 0; layer < kv.layers; ++layer) {
      const std::int64_t from = (layer * kv.pages + copy.from) * page,
                         to = (layer * kv.pages + copy.to) * page;
      std::memmove(bytes_at(kv.k, to), bytes_at(kv.k, from), static_cast<std::size_t>(page));
      std::memmove(bytes_at(kv.v, to), bytes_at(kv.v, from), static_cast<std::size_t>(page));
    }
  }
}

// Roll over to the next page.
void kv_rollover(const KvView& kv, std::span<const KvGrowth> growths,
                 std::span<std::int32_t> page_table, std::span<std::int32_t> taken) {
  if (taken.size() != growths.size()) {
    outside("kv_rollover",
            fmt::format("{} answers for {} sequences", taken.size(), growths.size()));
  }
  for (std::size_t i = 0; i < growths.size(); ++i) {
    const auto [sequence, length, page] = growths[i];
    taken[i] = 0;
    if (length < 0 || length % kv.page_size != 0) continue;
    const std::int64_t index = length / kv.page_size, at = sequence * kv.table_stride + index;
    if (sequence < 0 || index >= kv.table_stride || page < 0 || page >= kv.pages ||
        at >= static_cast<std::int64_t>(page_table.size())) {
      outside("kv_rollover",
              fmt::format("page {} for position {} of sequence {}", page, length, sequence));
    }
    page_table[static_cast<std::size_t>(at)] = page;
    taken[i] = 1;
  }
}

}  // namespace rose::kernels
