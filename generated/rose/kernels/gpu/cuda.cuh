// What device code shares: errors, conversions, copies, reductions and the matrix instruction.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "rose/core/error.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

inline cudaStream_t to_cuda(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

/// Throws core::Error for a CUDA call that failed: resource_exhausted when memory ran out, else internal.
inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // a failed launch must not be reported again by the next call
  const bool memory = error == cudaErrorMemoryAllocation;
  throw core::Error(memory ? core::Code::resource_exhausted : core::Code::internal,
                    std::string(what) + ": " + cudaGetErrorString(error));
}

#define ROSE_CUDA_CHECK(call) ::rose::kernels::gpu::check_cuda((call), #call)
/// After a launch: whether it was accepted.
#define ROSE_LAUNCH_CHECK(name) ::rose::kernels::gpu::check_cuda(cudaGetLastError(), name)

/// Lets a kernel use `bytes` of dynamic shared memory. Cheap when it is called again.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  constexpr std::size_t always = 48 * 1024;
  if (bytes <= always) return;
  ROSE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
}

// Ask what the running code may use.
namespace detail {
template <int = 0>
__global__ void compiled_code() {}
}  // namespace detail

/// Ten times the compute capability of the device or, where that is less, of the one the code was compiled for; 0 without a device.
inline int running_capability() {
  static const int value = [] {
    int device = 0, major = 0, minor = 0;
    cudaFuncAttributes code{};
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
        cudaFuncGetAttributes(&code, detail::compiled_code<0>) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
    constexpr int ten = 10;
    return code.ptxVersion < ten * major + minor ? code.ptxVersion : ten * major + minor;
  }();
  return value;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Convert between storage types and fp32, rounding to nearest even.
__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

/// The value that storing x as a T leaves.
template <class T>
__device__ __forceinline__ float round_to(float x) {
  return to_float(from_float<T>(x));
}

/// Two 16-bit values in one word, the first in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  static_assert(sizeof(T) == 2);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}
template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t word) {
  static_assert(sizeof(T) == 2);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(word));
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(word));
  }
}

// The exponential of every path that must agree.

/// 2^x by the hardware's approximation; results below the smallest normal number become 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

inline constexpr float log2_e = 1.4426950408889634f;

// Reduce over a warp and over the four threads of a quad, in one order.
inline constexpr unsigned full_warp = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(full_warp, x, step);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(full_warp, x, step));
  return x;
}
/// (q0 + q1) + (q2 + q3) of the four threads that hold one row of a matrix fragment.
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(full_warp, x, 1);
  return x + __shfl_xor_sync(full_warp, x, 2);
}
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(full_warp, x, 1));
  return fmaxf(x, __shfl_xor_sync(full_warp, x, 2));
}

// Copy from device to shared memory while computing.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies `bytes` (0 to 16) and fills up to 16 with zeros. Both addresses are multiples of 16.
__device__ __forceinline__ void copy_async_16(std::uint32_t to, const void* from, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `Pending` of this thread's groups are under way.
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Load fragments, and multiply 16 by 16 with 16 by 8.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_transposed(std::uint32_t (&r)[4],
                                                       std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(std::uint32_t (&r)[2], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

/// c += a b, fp32 sums of 16-bit products. T: __nv_bfloat16 or __half.
template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4],
                                            std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace rose::kernels::gpu
