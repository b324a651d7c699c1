// Redeem promised tokens, and change entries of a table.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// out[t] = ids[t] where that is not negative, else chosen[-ids[t] - 1], and -1 where that lies beyond `count` choices. A token that
/// is -1 has no embedding: its row becomes NaN, and so do its logits.
void resolve_tokens(const std::int32_t* ids, std::int64_t tokens, const std::int32_t* chosen,
                    std::int64_t count, std::int32_t* out, Stream stream);

/// table[entry.index] = entry.value; an index is given once. Indices outside the table are left alone.
struct TableEntry {
  std::int32_t index = 0, value = 0;
};
void scatter_entries(const TableEntry* entries, std::int64_t count, std::int32_t* table,
                     std::int64_t size, Stream stream);

}  // namespace rose::kernels::gpu
