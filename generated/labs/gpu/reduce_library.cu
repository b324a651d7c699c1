// CUB's sum, to compare with.

#include <cub/device/device_reduce.cuh>

#include "labs/gpu/reduce.h"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::labs {

Reduce* reduce_library() {
  return [](const float* in, std::int64_t count, float* out, gpu::Workspace workspace,
            gpu::Stream stream) {
    std::size_t needed = 0;
    ROSE_CUDA_CHECK(cub::DeviceReduce::Sum(nullptr, needed, in, out, count));
    gpu::check_workspace(workspace, needed);
    ROSE_CUDA_CHECK(cub::DeviceReduce::Sum(workspace.data, workspace.bytes, in, out, count,
                                           kernels::gpu::to_cuda(stream)));
  };
}

}  // namespace rose::labs
