// Climb the ladder.

#include "labs/gpu/scan_tile.cuh"

namespace rose::labs {
namespace {

using namespace scan_tile;
using kernels::gpu::ceil_div;
using kernels::gpu::to_cuda;

// Scan 512 numbers of a block in shared memory.
constexpr int kTreeItems = 2 * kThreads;

/// out = the scan of each 512 numbers by themselves; of_block = their sums.
__global__ void tree_kernel(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                            std::uint32_t* of_block) {
  __shared__ std::uint32_t x[kTreeItems];
  const int t = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * kTreeItems;
  for (int i = t; i < kTreeItems; i += kThreads) x[i] = first + i < count ? in[first + i] : 0;
  for (int d = 1; d < kTreeItems; d *= 2) {
    __syncthreads();
    const int i = (2 * t + 2) * d - 1;
    if (i < kTreeItems) x[i] += x[i - d];
  }
  __syncthreads();
  if (t == 0) of_block[blockIdx.x] = x[kTreeItems - 1], x[kTreeItems - 1] = 0;
  for (int d = kTreeItems / 2; d > 0; d /= 2) {
    __syncthreads();
    const int i = (2 * t + 2) * d - 1;
    if (i < kTreeItems) {
      const std::uint32_t left = x[i - d];
      x[i - d] = x[i];
      x[i] += left;
    }
  }
  __syncthreads();
  for (int i = t; i < kTreeItems; i += kThreads)
    if (first + i < count) out[first + i] = x[i];
}

// Scan blocks, scan their sums, add.
__global__ void add_kernel(std::uint32_t* out, std::int64_t count, const std::uint32_t* before,
                           int items) {
  const std::int64_t first = std::int64_t{blockIdx.x} * items;
  const std::uint32_t more = before[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < items; i += kThreads)
    if (first + i < count) out[first + i] += more;
}

using TileKernel = void(const std::uint32_t*, std::int64_t, std::uint32_t*, std::uint32_t*);

template <TileKernel* kScan, int kItems>
void levels(const std::uint32_t* in, std::int64_t count, std::uint32_t* out, std::uint32_t* memory,
            gpu::Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(count, kItems));
  kScan<<<blocks, kThreads, 0, to_cuda(stream)>>>(in, count, out, memory);
  if (blocks == 1) return;
  levels<kScan, kItems>(memory, blocks, memory, memory + ceil_div(blocks, 64) * 64, stream);
  add_kernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(out, count, memory, kItems);
}

template <TileKernel* kScan, int kItems>
void three_kernels(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                   gpu::Workspace workspace, gpu::Stream stream) {
  gpu::check_workspace(workspace, scan_workspace(count));
  if (count == 0) return;
  levels<kScan, kItems>(in, count, out, static_cast<std::uint32_t*>(workspace.data), stream);
  ROSE_LAUNCH_CHECK("scan");
}

// Scan a tile per block.
__global__ void __launch_bounds__(kThreads)
    shuffle_kernel(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                   std::uint32_t* of_block) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  Tile<kRows> x;
  load_tile(in + first, count - first, x);
  const std::uint32_t total = scan<kThreads>(x);
  store_tile(x, count - first, out + first);
  if (threadIdx.x == 0) of_block[blockIdx.x] = total;
}

// Add up tiles, scan the sums, scan the tiles.
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const std::uint32_t* in, std::int64_t count, std::uint32_t* of_block) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  Tile<kRows> x;
  load_tile(in + first, count - first, x);
  const std::uint32_t total = scan<kThreads>(x);
  if (threadIdx.x == 0) of_block[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    from_kernel(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                const std::uint32_t* before) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  Tile<kRows> x;
  load_tile(in + first, count - first, x);
  scan<kThreads>(x);
  const std::uint32_t more = before[blockIdx.x];
  for (auto& row : x)
    for (std::uint32_t& value : row) value += more;
  store_tile(x, count - first, out + first);
}

void reduce_first(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                  gpu::Workspace workspace, gpu::Stream stream) {
  gpu::check_workspace(workspace, scan_workspace(count));
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div(count, kTile));
  auto* const sums = static_cast<std::uint32_t*>(workspace.data);
  sum_kernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(in, count, sums);
  levels<shuffle_kernel, kTile>(sums, blocks, sums, sums + ceil_div(blocks, 64) * 64, stream);
  from_kernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(in, count, out, sums);
  ROSE_LAUNCH_CHECK("scan");
}

// Scan in one pass.
template <int kThreads, int kRows>
__global__ void __launch_bounds__(kThreads)
    look_back_kernel(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                     LookBack memory) {
  const std::int64_t tile = take_tile(memory), first = tile * (kThreads * kRows * kGroup);
  Tile<kRows> x;
  load_tile(in + first, count - first, x);
  const std::uint32_t total = scan<kThreads>(x);
  const std::uint32_t before = exchange(memory, tile, total);
  for (auto& row : x)
    for (std::uint32_t& value : row) value += before;
  store_tile(x, count - first, out + first);
}

template <int kThreads, int kRows>
void look_back_scan(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                    gpu::Workspace workspace, gpu::Stream stream) {
  gpu::check_workspace(workspace, scan_workspace(count));
  if (count == 0) return;
  const std::int64_t tiles = ceil_div(count, kThreads * kRows * kGroup);
  const LookBack memory = look_back_memory(workspace.data, tiles, stream);
  look_back_kernel<kThreads, kRows>
      <<<static_cast<unsigned>(tiles), kThreads, 0, to_cuda(stream)>>>(in, count, out, memory);
  ROSE_LAUNCH_CHECK("scan");
}

constexpr Rung<Scan> ladder[] = {
    {"tree", "up and down a tree in shared memory", three_kernels<tree_kernel, kTreeItems>},
    {"shuffle", "lanes read registers of lanes", three_kernels<shuffle_kernel, kTile>},
    {"reduce first", "sums first, then one pass", reduce_first},
    {"look-back", "one pass; blocks ask their predecessors", look_back_scan<kThreads, kRows>},
    {"large tiles", "a quarter as many questions", look_back_scan<512, 8>},
};

}  // namespace

Rungs<Scan> scan_ladder() {
  return ladder;
}

}  // namespace rose::labs
