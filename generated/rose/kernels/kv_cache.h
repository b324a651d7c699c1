// Move keys and values between pages and rows.

#pragma once

#include <cstdint>
#include <span>

#include "rose/kernels/kv_view.h"

namespace rose::kernels {

/// Where a token's key and value are: sequence (a row of the page table) and position in it.
struct KvPlace {
  std::int32_t sequence = 0, position = 0;
};

/// k and v [places, kv_heads * head_dim], in the cache's type, of one layer. A position below 0 gives zeros.
void kv_gather(const KvView& kv, int layer, std::span<const KvPlace> places, void* k, void* v);

/// A page copied onto another, all layers, keys and values: what a sequence does before it writes into a page it shares.
struct KvPageCopy {
  std::int32_t from = 0, to = 0;
};
void kv_copy_pages(const KvView& kv, std::span<const KvPageCopy> copies);

/// A sequence that is about to write position `length`, and the page that it gets if it needs one. A length below 0: none.
struct KvGrowth {
  std::int32_t sequence = 0, length = 0, page = 0;
};
/// Rollover: where the page before `length` is full, the table's next entry becomes the offered page. taken[i] is 1 where it was
/// used and 0 where the sequence still has room. The table is the memory behind kv.page_table. A sequence is named once.
void kv_rollover(const KvView& kv, std::span<const KvGrowth> growths,
                 std::span<std::int32_t> page_table, std::span<std::int32_t> taken);

}  // namespace rose::kernels
