// Hopper's barriers, clusters, tensor copies and warpgroup products.

#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>
#include <string>

#include "rose/kernels/gpu/cuda.cuh"

/// Instructions of compute capability 9.0 (the products: 9.0a). Including this is safe everywhere, calling it only there.
namespace rose::kernels::gpu::hopper {

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers known to copies and to the cluster.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive_expecting(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Arrives at the same barrier of a block of the cluster.
__device__ __forceinline__ void barrier_arrive_at(std::uint32_t barrier, int block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(  // a loop of the assembler's: one of the compiler's would count as divergence before a product
      "{\n"
      ".reg .pred complete;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
      "@complete bra done;\n"
      "bra again;\n"
      "done:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Clusters, and copies of boxes of a matrix.
__device__ __forceinline__ int cluster_size() {
  std::uint32_t size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return static_cast<int>(size);
}
__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
  return static_cast<int>(rank);
}
/// Execution only: what is in memory is ordered by barriers. Alone, a block waits for itself.
__device__ __forceinline__ void cluster_sync(int blocks) {
  if (blocks == 1) {
    __syncthreads();
  } else {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::
                     : "memory");
  }
}

/// Brings the description of a matrix on chip before the first copy asks for it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// Copies the box at (term, row) to this block's shared memory.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int term,
                                         int row, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(term), "r"(row), "r"(barrier)
      : "memory");
}
/// The same of a matrix of three dimensions, and of numbers that nobody will read again: the L2 gives them up first.
__device__ __forceinline__ void copy_box_once(std::uint32_t to, const CUtensorMap* map, int term,
                                              int row, int slab, std::uint32_t barrier) {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(term), "r"(row), "r"(slab), "r"(barrier), "l"(policy)
      : "memory");
}
/// Copies it to the same place in the blocks of the mask, and reports to each one's barrier.
__device__ __forceinline__ void copy_box_to(std::uint16_t mask, std::uint32_t to,
                                            const CUtensorMap* map, int term, int row,
                                            std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(term), "r"(row), "r"(barrier), "h"(mask)
      : "memory");
}

// Describe matrices for such copies, on the host.
inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    constexpr unsigned version = 12000;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, version,
                                         cudaEnableDefault, &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      cudaGetLastError();
      found = nullptr;
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  return function;
}

// Ask the device and the code.
namespace detail {
template <int = 0>
__global__ void compiled_for_hopper(int* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ volatile int sign;
  sign = 1;
  *out = sign;
#endif
}
}  // namespace detail

/// Whether this is such a device, running code that was compiled for it, with a driver that can describe matrices to it.
inline bool present() {
  static const bool yes = [] {
    constexpr int hopper = 90, after = 100;
    const int running = running_capability();
    cudaFuncAttributes code{};
    if (running < hopper || running >= after ||
        cudaFuncGetAttributes(&code, detail::compiled_for_hopper<0>) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return code.sharedSizeBytes > 0 && tensor_map_encoder() != nullptr;
  }();
  return yes;
}

/// Boxes of 128-byte rows, swizzled. Strides in bytes, from the second dimension on. What lies outside arrives as zeros.
template <std::size_t Rank>
CUtensorMap tensor_map(CUtensorMapDataType type, const void* data, const cuuint64_t (&sizes)[Rank],
                       const cuuint64_t (&strides)[Rank - 1], const cuuint32_t (&box)[Rank],
                       CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  CUtensorMap map{};
  cuuint32_t every[Rank];
  for (cuuint32_t& e : every) e = 1;
  const CUresult result =
      tensor_map_encoder()(&map, type, Rank, const_cast<void*>(data), sizes, strides, box, every,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw core::Error(core::Code::internal,
                      "cuTensorMapEncodeTiled: error " + std::to_string(result));
  }
  return map;
}

// Products of 64 rows with 8 to 64 columns.

/// Rows of 128 bytes in shared memory, swizzled; groups of eight rows are 1,024 bytes apart.
__device__ __forceinline__ std::uint64_t swizzled_tile(std::uint32_t address) {
  constexpr std::uint64_t group = 1024, one = 1, swizzle_128 = 1;
  return (address & 0x3ffff) >> 4 | one << 16 | group >> 4 << 32 | swizzle_128 << 62;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ void product_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void product_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// d += a b, bf16 in, fp32 sums. The size of d says how many columns.
__device__ __forceinline__ void product(float (&d)[4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void product(float (&d)[8], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, "
      "1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void product(float (&d)[16], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void product(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}
#endif

}  // namespace rose::kernels::gpu::hopper
