// One thread for each token or entry.

#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/tokens.h"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 256;

__global__ void resolve_kernel(const std::int32_t* ids, std::int64_t tokens,
                               const std::int32_t* chosen, std::int64_t count, std::int32_t* out) {
  const std::int64_t t = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (t >= tokens) return;
  const std::int32_t id = ids[t];
  const std::int64_t row = -std::int64_t{id} - 1;
  out[t] = id >= 0 ? id : row < count ? chosen[row] : -1;
}

__global__ void scatter_kernel(const TableEntry* entries, std::int64_t count, std::int32_t* table,
                               std::int64_t size) {
  const std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  const TableEntry entry = entries[i];
  if (entry.index >= 0 && entry.index < size) table[entry.index] = entry.value;
}

unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>(ceil_div(count, kThreads));
}

}  // namespace

void launch_resolve_tokens(const std::int32_t* ids, std::int64_t tokens, const std::int32_t* chosen,
                           std::int64_t count, std::int32_t* out, Stream stream) {
  resolve_kernel<<<blocks_of(tokens), kThreads, 0, to_cuda(stream)>>>(ids, tokens, chosen, count,
                                                                      out);
  ROSE_LAUNCH_CHECK("resolve_tokens");
}

void launch_scatter_entries(const TableEntry* entries, std::int64_t count, std::int32_t* table,
                            std::int64_t size, Stream stream) {
  scatter_kernel<<<blocks_of(count), kThreads, 0, to_cuda(stream)>>>(entries, count, table, size);
  ROSE_LAUNCH_CHECK("scatter_entries");
}

}  // namespace rose::kernels::gpu
