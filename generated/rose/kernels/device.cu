// Run one kernel on every GPU and check all it computed.

#include <cmath>
#include <string>
#include <vector>

#include "rose/kernels/device.h"

namespace rose::kernels {

namespace {

constexpr int count = 1 << 20;

__host__ __device__ float expected(int i) {
  return fmaf(static_cast<float>(i), 1.0f / 3.0f, 0.1f);
}

__global__ void fill(float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = expected(i);
}

// The first failure, or cudaSuccess with the number of wrong words.
cudaError_t compute_and_compare(int device, int& wrong) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return error;
  float* out = nullptr;
  if (const cudaError_t error = cudaMalloc(&out, count * sizeof(float)); error != cudaSuccess)
    return error;
  std::vector<float> host(count, -1.0f);
  fill<<<(count + 255) / 256, 256>>>(out, count);
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) {
    error = cudaMemcpy(host.data(), out, count * sizeof(float), cudaMemcpyDeviceToHost);
  }
  cudaFree(out);
  for (int i = 0; i < count; ++i) wrong += host[static_cast<std::size_t>(i)] != expected(i);
  return error;
}

}  // namespace

DeviceReport check_devices() {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || devices == 0) {
    cudaGetLastError();
    return {DeviceState::none, cudaGetErrorString(error)};
  }
  std::string names;
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties{};
    int wrong = 0;
    cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) error = compute_and_compare(device, wrong);
    if (error != cudaSuccess || wrong != 0) {
      const std::string why = error != cudaSuccess ? std::string(cudaGetErrorString(error))
                                                   : std::to_string(wrong) + " wrong results";
      return {DeviceState::failed, "GPU " + std::to_string(device) + ": " + why};
    }
    names += (names.empty() ? "" : "; ") + std::string(properties.name) + ", " +
             std::to_string(properties.totalGlobalMem >> 30) + " GiB, sm_" +
             std::to_string(properties.major * 10 + properties.minor);
  }
  return {DeviceState::works, names};
}

}  // namespace rose::kernels
