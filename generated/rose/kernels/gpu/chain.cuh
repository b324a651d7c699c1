// Begin before the kernel before has ended.

#pragma once

#include <cstddef>
#include <utility>

#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

/// Lets the next kernel of the stream begin, if it was launched by launch_early: it will wait for this one's end where it must.
__device__ __forceinline__ void allow_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the kernels before this one have ended, and what they wrote can be read. Every thread that reads or writes memory that
/// is not constant calls it first; where a kernel was not launched early it costs nothing.
__device__ __forceinline__ void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Launches a kernel that may begin before the one before it in the stream has ended, and calls await_previous.
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                  std::size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = dim3(blocks);
  configuration.blockDim = dim3(threads);
  configuration.dynamicSmemBytes = shared_bytes;
  configuration.stream = stream;
  configuration.attrs = &early;
  constexpr int hopper =
      90;  // before it, or in code from before it, a kernel begins when the one before has ended
  configuration.numAttrs = running_capability() >= hopper ? 1 : 0;
  ROSE_CUDA_CHECK(
      cudaLaunchKernelEx(&configuration, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace rose::kernels::gpu
