// Check tokens and entries.

#include "rose/kernels/gpu/tokens.h"

#include <fmt/format.h>

namespace rose::kernels::gpu {

void launch_resolve_tokens(const std::int32_t*, std::int64_t, const std::int32_t*, std::int64_t,
                           std::int32_t*, Stream);
void launch_scatter_entries(const TableEntry*, std::int64_t, std::int32_t*, std::int64_t, Stream);

void resolve_tokens(const std::int32_t* ids, std::int64_t tokens, const std::int32_t* chosen,
                    std::int64_t count, std::int32_t* out, [[maybe_unused]] Stream stream) {
  if (tokens < 0) bad_argument("tokens", fmt::format("{} tokens", tokens));
  if (tokens == 0) return;
  if (ids == nullptr) bad_argument("ids", "no memory");
  if (out == nullptr) bad_argument("out", "no memory");
  if (count < 0 || (count > 0 && chosen == nullptr)) bad_argument("chosen", "no memory");
#ifdef ROSE_HAVE_CUDA
  launch_resolve_tokens(ids, tokens, chosen, count, out, stream);
#else
  no_cuda("resolve_tokens");
#endif
}

void scatter_entries(const TableEntry* entries, std::int64_t count, std::int32_t* table,
                     std::int64_t size, [[maybe_unused]] Stream stream) {
  if (count < 0) bad_argument("count", fmt::format("{} entries", count));
  if (count == 0) return;
  if (entries == nullptr) bad_argument("entries", "no memory");
  if (table == nullptr || size <= 0) bad_argument("table", "no memory");
#ifdef ROSE_HAVE_CUDA
  launch_scatter_entries(entries, count, table, size, stream);
#else
  no_cuda("scatter_entries");
#endif
}

}  // namespace rose::kernels::gpu
