// Attention, one split of the keys to a block, pages brought whole.

#include <algorithm>

#include "rose/kernels/gpu/attention_splits.cuh"
#include "rose/kernels/gpu/chain.cuh"
#include "rose/kernels/gpu/hopper.cuh"
#include "rose/kernels/gpu/warpgroup.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kWarps = 4, kComputing = 32 * kWarps, kThreads = kComputing + 32;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr int kKeys = 16;   // that one copy brings
constexpr int kTile = numerics::key_tile, kTileCopies = kTile / kKeys;
constexpr int kTiles = numerics::key_split / kTile;  // as many as computing warps
constexpr int kStage = 4;                            // copies in a stage of the ring
static_assert(kTiles == kWarps && kStage == kWarps && numerics::key_split / kKeys == 32);

/// How many copies bring this many keys.
__device__ __forceinline__ int copies_of(int keys) {
  return (keys + kKeys - 1) / kKeys;
}

// Divide shared memory.
template <class T, int D, int Stages>
struct PagesShared {
  Swizzled<T, D, kKeys> ring[Stages][kStage];  // 16 keys or values each
  static constexpr int pitch = numerics::key_split + 8;
  T weights[split_rows * pitch];
  TileStates<kTiles> states;
  std::uint64_t full[Stages], empty[Stages];
};

/// Where in the ring a warp is.
template <int Stages>
struct RingPosition {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The warp that fetches.
template <class T, int D, int Stages>
__device__ __forceinline__ void fetch_pages(const AttentionCall& call, const CUtensorMap& k_map,
                                            const CUtensorMap& v_map,
                                            PagesShared<T, D, Stages>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, group = call.heads / call.kv_heads;
  // The page that holds this lane's 16 keys, and the row where they begin. There is no such page: the row behind the last,
  // which arrives as zeros.
  const auto page_of = [&](const SplitItem& item) {
    if (lane >= copies_of(item.keys(group))) return 0;
    const int position = item.first_key() + lane * kKeys;
    const int index =
        call.page_shift >= 0 ? position >> call.page_shift : position / call.page_size;
    return __ldg(call.page_table + item.sequence() * call.table_stride + index);
  };
  const auto row_of = [&](const SplitItem& item, int page) {
    if (page < 0 || page >= call.pages) {
      if (call.fault != nullptr) *call.fault = 1;
      return call.pages * call.kv_heads * call.page_size;
    }
    return (page * call.kv_heads + item.kv_head()) * call.page_size +
           (item.first_key() + lane * kKeys) % call.page_size;
  };
  RingPosition<Stages> at;
  const auto bring = [&](const CUtensorMap& map, int row, int copies) {
    const std::uint32_t full = shared_address(&shared.full[at.stage]);
    barrier_wait(shared.empty[at.stage], at.parity ^ 1);
    if (lane == 0) {
      hopper::barrier_arrive_expecting(full, copies * static_cast<int>(sizeof(T)) * kKeys * D);
    }
    __syncwarp();
    if (lane < copies) {
      hopper::copy_box_once(shared_address(shared.ring[at.stage][lane].at), &map, 0, row, 0, full);
    }
    at.advance();
  };
  const std::int64_t step = gridDim.x;
  SplitItem item(call, blockIdx.x), next(call, blockIdx.x + step);
  int page = page_of(item);
  await_previous();
  for (std::int64_t index = blockIdx.x; !item.empty(); index += step) {
    const int copies = copies_of(item.keys(group)), row = row_of(item, page);
    page = page_of(next);  // nobody waits for it before this item is on its way
    const SplitItem after(call, index + 2 * step);
    for (int p = 0; p < min(copies, kTileCopies); ++p) {  // 16 keys of every tile
      const int from = __shfl_sync(full_warp, row, lane * kTileCopies + p & 31);
      bring(k_map, from, (copies - p + kTileCopies - 1) / kTileCopies);
    }
    for (int p = 0; p < copies; p += kStage) {  // 64 values
      const int from = __shfl_sync(full_warp, row, p + lane & 31);
      bring(v_map, from, min(kStage, copies - p));
    }
    item = next;
    next = after;
  }
}

// The warps that compute.
template <class T, int D, int Stages>
__device__ __forceinline__ void attend_pages(const AttentionCall& call,
                                             PagesShared<T, D, Stages>& shared) {
  using Rows = Swizzled<T, D, kKeys>;
  constexpr int columns = D / kWarps;  // of the output, that a warp computes
  constexpr int pitch = PagesShared<T, D, Stages>::pitch;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, quad = lane % 4, group = call.heads / call.kv_heads;
  RingPosition<Stages> at;
  const auto release = [&] {
    __syncwarp();
    if (lane == 0) barrier_arrive(shared.empty[at.stage]);
    at.advance();
  };
  // Queries go to registers: the left operands of the scores.
  std::uint32_t q[D / 16][4];
  const auto load_queries = [&](const SplitItem& from) {
    if (from.empty()) return;
    ROSE_UNROLL()
    for (int h = 0; h < 2; ++h) {
      const int row = g + 8 * h, r = from.first_row() + row;
      const bool there = row < from.rows(group);
      const std::int64_t token = from.first_token() + (there ? r / group : 0);
      const T* const query = static_cast<const T*>(call.q) + token * call.q_stride +
                             (from.kv_head() * group + (there ? r % group : 0)) * D + 2 * quad;
      ROSE_UNROLL()
      for (int kk = 0; kk < D / 16; ++kk) {
        ROSE_UNROLL()
        for (int i = 0; i < 2; ++i) {
          q[kk][2 * i + h] =
              there ? __ldg(reinterpret_cast<const unsigned*>(query + kk * 16 + i * 8)) : 0u;
        }
      }
    }
  };
  const std::int64_t step = gridDim.x;
  SplitItem item(call, blockIdx.x);
  await_previous();
  load_queries(item);
  for (std::int64_t index = blockIdx.x; !item.empty(); index += step) {
    const SplitItem next(call, index + step);
    const int keys = item.keys(group), copies = copies_of(keys);
    // Scores: this warp's tile, 16 keys at a time.
    float s[kTile / 8][4] = {};
    ROSE_UNROLL()
    for (int p = 0; p < kTileCopies; ++p) {
      if (p < copies) {
        barrier_wait(shared.full[at.stage], at.parity);
        if (warp * kTileCopies + p < copies) {
          const T* const block = shared.ring[at.stage][warp].at;
          const int row = (lane & 7) + (lane >> 4) * 8;
          ROSE_UNROLL()
          for (int kk = 0; kk < D / 16; ++kk) {
            std::uint32_t b[4];
            ldmatrix_x4(b,
                        shared_address(block + Rows::offset(row, kk * 16 + (lane >> 3 & 1) * 8)));
            mma_16x8x16<T>(s[2 * p], q[kk], b[0], b[1]);
            mma_16x8x16<T>(s[2 * p + 1], q[kk], b[2], b[3]);
          }
        }
        release();
      }
    }
    load_queries(next);
    // Weights: the tile is where it is needed already.
    const int limit[2] = {item.limit(g, group), item.limit(g + 8, group)};
    mask(s, warp * kTile, limit);
    gather_threads(1, kComputing);  // everybody is done with the last split's weights
    shared.states.note_max(s, warp, call.factor);
    gather_threads(1, kComputing);
    shared.states.soften_tile(s, warp, call.factor, shared.weights + warp * kTile, pitch);
    gather_threads(1, kComputing);
    // Values: this warp's columns, keys ascending by 16.
    float open[columns / 8][4] = {};
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int p = 0; p < copies; p += kStage) {
      barrier_wait(shared.full[at.stage], at.parity);
      if (p % kTileCopies == 0) shared.states.begin_tile(p / kTileCopies, open, max, sum);
      ROSE_UNROLL()
      for (int c = 0; c < kStage; ++c) {
        if (p + c >= copies) break;
        T* const block = shared.ring[at.stage][c].at;
        if (keys - (p + c) * kKeys < kKeys) {
          // Behind the last value lies what another sequence left there.
          constexpr int chunks = columns / 8;
          for (int i = lane; i < kKeys * chunks; i += 32) {
            if (i / chunks < keys - (p + c) * kKeys) continue;
            *reinterpret_cast<uint4*>(block +
                                      Rows::offset(i / chunks, warp * columns + i % chunks * 8)) =
                make_uint4(0, 0, 0, 0);
          }
          order_copies();
          __syncwarp();
        }
        std::uint32_t w[4];
        ldmatrix_x4(w, shared_address(shared.weights + (lane & 15) * pitch + (p + c) * kKeys +
                                      (lane >> 4) * 8));
        const int row = (lane & 7) + (lane >> 3 & 1) * 8;
        ROSE_UNROLL()
        for (int j = 0; j < columns / 16; ++j) {
          std::uint32_t b[4];
          ldmatrix_x4_transposed(
              b,
              shared_address(block + Rows::offset(row, warp * columns + j * 16 + (lane >> 4) * 8)));
          mma_16x8x16<T>(open[2 * j], w, b[0], b[1]);
          mma_16x8x16<T>(open[2 * j + 1], w, b[2], b[3]);
        }
      }
      release();
    }
    store_split<T, D>(call, item, open, max, sum, warp * columns, warp == 0);
    item = next;
  }
}

// Hand out roles.
template <class T, int D, int Stages>
__global__ void __launch_bounds__(kThreads, kBlocks)
    attend_paged_splits(AttentionCall call, const __grid_constant__ CUtensorMap k_map,
                        const __grid_constant__ CUtensorMap v_map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<PagesShared<T, D, Stages>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stages; ++i) {
      barrier_begin(shared.full[i], 1);
      barrier_begin(shared.empty[i], kWarps);
    }
    hopper::barrier_init_fence();
    hopper::prefetch_map(&k_map);
    hopper::prefetch_map(&v_map);
  }
  allow_next();
  __syncthreads();
  if (threadIdx.x < kComputing) {
    attend_pages(call, shared);
  } else {
    fetch_pages(call, k_map, v_map, shared);
  }
#else
  __trap();  // compiled for a machine without these instructions: nothing launches this there
#endif
}

// Describe the cache, and launch.

/// A layer of the cache as rows of D / 64 slabs. Nothing is fetched that was not asked for: everything will be.
CUtensorMap describe(const AttentionCall& call, const void* data) {
  constexpr cuuint64_t slab = 64, bytes = 2;
  const auto width = static_cast<cuuint64_t>(call.head_dim), slabs = width / slab;
  const cuuint64_t sizes[3] = {slab, static_cast<cuuint64_t>(call.key_rows), slabs},
                   strides[2] = {width * bytes, slab * bytes};
  const cuuint32_t box[3] = {slab, kKeys, static_cast<cuuint32_t>(slabs)};
  return hopper::tensor_map(
      call.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      data, sizes, strides, box, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

// Launch.
template <class T, int D, int Stages>
void launch(const AttentionCall& call, cudaStream_t stream) {
  constexpr int bytes = sizeof(PagesShared<T, D, Stages>);
  static_assert(bytes <= 113 * 1024);
  const auto kernel = attend_paged_splits<T, D, Stages>;
  allow_shared_memory(kernel, bytes);
  int device = 0, processors = 0;
  ROSE_CUDA_CHECK(cudaGetDevice(&device));
  ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const auto blocks = static_cast<unsigned>(
      std::min<std::int64_t>(call.item_count, std::int64_t{kBlocks} * processors));
  launch_early(kernel, blocks, kThreads, bytes, stream, call, describe(call, call.k),
               describe(call, call.v));
}

template <class T>
void launch(const AttentionCall& call, cudaStream_t stream) {
  call.head_dim == 64 ? launch<T, 64, 10>(call, stream) : launch<T, 128, 5>(call, stream);
}

}  // namespace

bool launch_attention_pages(const AttentionCall& call, void* stream) {
  if (!call.warpgroup || call.bytes || call.dtype == DType::f32 || call.page_table == nullptr ||
      call.page_size % kKeys != 0 || (call.head_dim != 64 && call.head_dim != 128) ||
      !hopper::present()) {
    return false;
  }
  auto* const s = static_cast<cudaStream_t>(stream);
  call.dtype == DType::f16 ? launch<__half>(call, s) : launch<__nv_bfloat16>(call, s);
  return true;
}

}  // namespace rose::kernels::gpu
