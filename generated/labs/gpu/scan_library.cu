// CUB's scan and selection, to compare with.

#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "labs/gpu/scan.h"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::labs {
namespace {

struct NotZero {
  __device__ bool operator()(std::uint32_t x) const { return x != 0; }
};

void scan_by_library(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                     gpu::Workspace workspace, gpu::Stream stream) {
  const cudaStream_t queue = kernels::gpu::to_cuda(stream);
  std::size_t needed = 0;
  ROSE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, needed, in, out, count, queue));
  gpu::check_workspace(workspace, needed);
  ROSE_CUDA_CHECK(
      cub::DeviceScan::ExclusiveSum(workspace.data, workspace.bytes, in, out, count, queue));
}

void compact_by_library(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                        std::uint32_t* kept, gpu::Workspace workspace, gpu::Stream stream) {
  const cudaStream_t queue = kernels::gpu::to_cuda(stream);
  std::size_t needed = 0;
  ROSE_CUDA_CHECK(cub::DeviceSelect::If(nullptr, needed, in, out, kept, count, NotZero{}, queue));
  gpu::check_workspace(workspace, needed);
  ROSE_CUDA_CHECK(cub::DeviceSelect::If(workspace.data, workspace.bytes, in, out, kept, count,
                                        NotZero{}, queue));
}

}  // namespace

Scan* scan_library() {
  return scan_by_library;
}
Compact* compact_library() {
  return compact_by_library;
}

}  // namespace rose::labs
