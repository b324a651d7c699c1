// Hopper's matrix instruction, issued by four warps for 64 rows.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

#define ROSE_PRAGMA(text) _Pragma(#text)
#define ROSE_UNROLL(...) ROSE_PRAGMA(unroll __VA_ARGS__)

// Multiply 64 rows at once, from shared memory or registers.

/// Sums in fragments of 8 columns: as the four-register results of mma.sync, side by side.
template <class T>
struct Warpgroup;

#define ROSE_SUMS(d, j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define ROSE_SUMS_8(d, j)                                                         \
  ROSE_SUMS(d, j), ROSE_SUMS(d, j + 1), ROSE_SUMS(d, j + 2), ROSE_SUMS(d, j + 3), \
      ROSE_SUMS(d, j + 4), ROSE_SUMS(d, j + 5), ROSE_SUMS(d, j + 6), ROSE_SUMS(d, j + 7)
#define ROSE_REGISTERS_32                                                              \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
  "%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ROSE_REGISTERS_64                                                                \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"   \
  "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
  "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// Issue products of 64 and 128 columns.

/// multiply: d = a b, or d += a b when `add`; a and b [rows, 16] in shared memory.
/// multiply_add: d += a b; a [64, 16] in registers, b [16, columns] in shared memory.
#define ROSE_WARPGROUP_PRODUCTS(TYPES)                                                             \
  static __device__ __forceinline__ void multiply(float(&d)[8][4], std::uint64_t a,                \
                                                  std::uint64_t b, int add) {                      \
    asm volatile(                                                                                  \
        "{.reg .pred p; setp.ne.b32 p, %34, 0; "                                                   \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " {" ROSE_REGISTERS_32                 \
        "}, %32, %33, p, 1, 1, 0, 0;}"                                                             \
        : ROSE_SUMS_8(d, 0)                                                                        \
        : "l"(a), "l"(b), "r"(add));                                                               \
  }                                                                                                \
  static __device__ __forceinline__ void multiply(float(&d)[16][4], std::uint64_t a,               \
                                                  std::uint64_t b, int add) {                      \
    asm volatile(                                                                                  \
        "{.reg .pred p; setp.ne.b32 p, %66, 0; "                                                   \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " {" ROSE_REGISTERS_64                \
        "}, %64, %65, p, 1, 1, 0, 0;}"                                                             \
        : ROSE_SUMS_8(d, 0), ROSE_SUMS_8(d, 8)                                                     \
        : "l"(a), "l"(b), "r"(add));                                                               \
  }                                                                                                \
  static __device__ __forceinline__ void multiply_add(float(&d)[8][4], const std::uint32_t(&a)[4], \
                                                      std::uint64_t b) {                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " {" ROSE_REGISTERS_32        \
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                       \
                 : ROSE_SUMS_8(d, 0)                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }                                                                                                \
  static __device__ __forceinline__ void multiply_add(                                             \
      float(&d)[16][4], const std::uint32_t(&a)[4], std::uint64_t b) {                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " {" ROSE_REGISTERS_64       \
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                                       \
                 : ROSE_SUMS_8(d, 0), ROSE_SUMS_8(d, 8)                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }

template <>
struct Warpgroup<__nv_bfloat16> {
  ROSE_WARPGROUP_PRODUCTS("bf16.bf16")
};
template <>
struct Warpgroup<__half> {
  ROSE_WARPGROUP_PRODUCTS("f16.f16")
};

// Start, hand in, wait.
__device__ __forceinline__ void warpgroup_arrive() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// The assembler moves a wait as far up as it can within its block of instructions, past arithmetic that was to run meanwhile. It
/// does not move it past a branch. `Place` keeps the waits of two branches from being taken for the same.
template <int Pending, int Place = 0>
__device__ __forceinline__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;  // place %1" ::"n"(Pending), "n"(Place)
               : "memory");
}
/// The compiler may not move reads or writes of these registers across this point.
template <int N>
__device__ __forceinline__ void pin(float (&d)[N][4]) {
  ROSE_UNROLL()
  for (int j = 0; j < N; ++j) {
    asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
  }
}
template <int N>
__device__ __forceinline__ void pin(std::uint32_t (&a)[N][4]) {
  ROSE_UNROLL()
  for (int j = 0; j < N; ++j) {
    asm volatile("" : "+r"(a[j][0]), "+r"(a[j][1]), "+r"(a[j][2]), "+r"(a[j][3])::"memory");
  }
}

/// Copies are ordinary writes, the matrix unit reads through another path: order the two.
__device__ __forceinline__ void order_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Barriers that copies and readers arrive at.
__device__ __forceinline__ void barrier_begin(std::uint64_t& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
/// Arrives when all copies that this thread has issued so far are complete.
__device__ __forceinline__ void barrier_arrive_after_copies(std::uint64_t& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint64_t& barrier, int parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "wait: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra wait;\n"
      "done: }" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}
/// Waits for the other threads of a set of whole warps.
__device__ __forceinline__ void gather_threads(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
/// Counts towards such a gathering without waiting.
__device__ __forceinline__ void announce_threads(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Tiles as the warpgroup instruction reads them.

/// Rows x D elements as D / 64 slabs of [Rows][64]; the 16-byte chunks of a row are permuted by the row's low bits.
template <class T, int D, int Rows>
struct Swizzled {
  static constexpr int width = D;
  T at[Rows * D];

  static __device__ __forceinline__ int offset(int row, int d) {
    return d / 64 * (Rows * 64) + row * 64 + ((d % 64 / 8) ^ (row & 7)) * 8;
  }
  template <int Behind>
  static __device__ constexpr int apart() {
    static_assert(Behind % 8 == 0);  // rows of the same permutation
    return Behind * 64;
  }
  /// Describes the operand that begins `bytes` into the tile. Rows in groups of 8 are 1,024 bytes apart.
  __device__ __forceinline__ std::uint64_t describe(unsigned bytes) const {
    constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
    constexpr std::uint64_t slab = Rows * 128 / 16, eight_rows = 1024 / 16;
    const std::uint64_t tile =
        shared_address(at) >> 4 | slab << 16 | eight_rows << 32 | swizzle_128;
    return tile + (bytes >> 4);  // shared memory ends before the address's field does
  }
  /// Depth of 16 columns from 16 kk on; rows from `row` (a multiple of 8).
  __device__ __forceinline__ std::uint64_t by_columns(int row, int kk) const {
    return describe(static_cast<unsigned>(kk / 4 * (Rows * 128) + row * 128 + kk % 4 * 32));
  }
  /// Depth of 16 rows from 16 kk on, transposed.
  __device__ __forceinline__ std::uint64_t by_rows(int kk) const {
    return describe(static_cast<unsigned>(kk * 16 * 128));
  }
};

}  // namespace rose::kernels::gpu
