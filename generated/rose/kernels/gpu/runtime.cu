// Devices, memory and streams, through the CUDA runtime.

#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

bool available() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return true;
  cudaGetLastError();
  return false;
}

void synchronize(Stream stream) {
  ROSE_CUDA_CHECK(cudaStreamSynchronize(to_cuda(stream)));
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes > 0) ROSE_CUDA_CHECK(cudaMalloc(&data_, bytes));
}

Buffer::~Buffer() {
  cudaFree(data_);
}

void Buffer::upload(std::span<const std::byte> host, std::size_t offset) {
  if (offset + host.size() > bytes_) bad_argument("host", "does not fit into the buffer");
  if (host.empty()) return;
  ROSE_CUDA_CHECK(
      cudaMemcpy(as<std::byte>() + offset, host.data(), host.size(), cudaMemcpyHostToDevice));
}

void Buffer::download(std::span<std::byte> host, std::size_t offset) const {
  if (offset + host.size() > bytes_) bad_argument("host", "the buffer is smaller");
  if (host.empty()) return;
  ROSE_CUDA_CHECK(
      cudaMemcpy(host.data(), as<std::byte>() + offset, host.size(), cudaMemcpyDeviceToHost));
}

void Buffer::poison() {
  if (bytes_ == 0) return;
  ROSE_CUDA_CHECK(cudaMemset(data_, 0xff, bytes_));
  ROSE_CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace rose::kernels::gpu
