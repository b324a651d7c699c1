// Keep what is not zero.

#include "labs/gpu/scan_tile.cuh"

namespace rose::labs {
namespace {

using namespace scan_tile;
using kernels::gpu::ceil_div;
using kernels::gpu::to_cuda;

// Flag, scan, scatter.
__global__ void flag_kernel(const std::uint32_t* in, std::int64_t count, std::uint32_t* flag) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) flag[i] = in[i] != 0;
}

__global__ void scatter_kernel(const std::uint32_t* in, std::int64_t count,
                               const std::uint32_t* place, std::uint32_t* out,
                               std::uint32_t* kept) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  if (in[i] != 0) out[place[i]] = in[i];
  if (i == count - 1) *kept = place[i] + (in[i] != 0);
}

void three_passes(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                  std::uint32_t* kept, gpu::Workspace workspace, gpu::Stream stream) {
  gpu::check_workspace(workspace, compact_workspace(count));
  const cudaStream_t queue = to_cuda(stream);
  ROSE_CUDA_CHECK(cudaMemsetAsync(kept, 0, sizeof *kept, queue));
  if (count == 0) return;
  const std::size_t scan_bytes = scan_workspace(count) / 256 * 256;
  auto* const flag =
      reinterpret_cast<std::uint32_t*>(static_cast<char*>(workspace.data) + scan_bytes);
  auto* const place = flag + ceil_div(count, 64) * 64;
  const auto blocks = static_cast<unsigned>(ceil_div(count, kThreads));
  flag_kernel<<<blocks, kThreads, 0, queue>>>(in, count, flag);
  scan_ladder().back().launch(flag, count, place, {workspace.data, scan_workspace(count)}, stream);
  scatter_kernel<<<blocks, kThreads, 0, queue>>>(in, count, place, out, kept);
  ROSE_LAUNCH_CHECK("compact");
}

// Compact in one pass.
__global__ void __launch_bounds__(kThreads)
    compact_kernel(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                   std::uint32_t* kept, LookBack memory) {
  __shared__ std::uint32_t side_by_side[kTile];
  const std::int64_t tile = take_tile(memory), first = tile * kTile;
  Tile<kRows> x, at;
  load_tile(in + first, count - first, x);
  for (int row = 0; row < kRows; ++row)
    for (int e = 0; e < kGroup; ++e) at[row][e] = x[row][e] != 0;
  const std::uint32_t total = scan<kThreads>(at);
  for (int row = 0; row < kRows; ++row)
    for (int e = 0; e < kGroup; ++e)
      if (x[row][e] != 0) side_by_side[at[row][e]] = x[row][e];
  const std::uint32_t before = exchange(memory, tile, total);
  for (std::uint32_t i = threadIdx.x; i < total; i += kThreads) out[before + i] = side_by_side[i];
  if (first + kTile >= count && threadIdx.x == 0) *kept = before + total;
}

void one_pass(const std::uint32_t* in, std::int64_t count, std::uint32_t* out, std::uint32_t* kept,
              gpu::Workspace workspace, gpu::Stream stream) {
  gpu::check_workspace(workspace, compact_workspace(count));
  const cudaStream_t queue = to_cuda(stream);
  if (count == 0) {
    ROSE_CUDA_CHECK(cudaMemsetAsync(kept, 0, sizeof *kept, queue));
    return;
  }
  const std::int64_t tiles = ceil_div(count, kTile);
  const LookBack memory = look_back_memory(workspace.data, tiles, stream);
  compact_kernel<<<static_cast<unsigned>(tiles), kThreads, 0, queue>>>(in, count, out, kept,
                                                                       memory);
  ROSE_LAUNCH_CHECK("compact");
}

constexpr Rung<Compact> ladder[] = {
    {"flag, scan, scatter", "three passes over memory", three_passes},
    {"look-back", "flags and places in registers, one pass", one_pass},
};

}  // namespace

Rungs<Compact> compact_ladder() {
  return ladder;
}

}  // namespace rose::labs
