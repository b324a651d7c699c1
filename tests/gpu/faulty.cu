// A kernel with a fault of each kind that compute-sanitizer looks for. An instrument that finds nothing here finds nothing anywhere:
// runs.py asks each tool for its fault before it believes that there is none.
#include <cstdio>
#include <string_view>

namespace {

__global__ void beyond(int* out) {
  out[threadIdx.x + 1] = 1;  // memcheck: the last thread writes behind the buffer
}

__global__ void unordered(int* out) {
  __shared__ int shared[64];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = shared[63 - threadIdx.x];  // racecheck: no barrier between two warps
}

__global__ void unwritten(const int* in, int* out) {
  out[threadIdx.x] = in[threadIdx.x] + 1;  // initcheck: nobody wrote `in`
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view fault = argc > 1 ? argv[1] : "";
  constexpr int threads = 64;
  int *in = nullptr, *out = nullptr;
  if (cudaMalloc(&in, threads * sizeof(int)) != cudaSuccess) return 77;
  if (cudaMalloc(&out, threads * sizeof(int)) != cudaSuccess) return 77;
  if (fault == "memcheck") beyond<<<1, threads>>>(out);
  if (fault == "racecheck") unordered<<<1, threads>>>(out);
  if (fault == "initcheck") unwritten<<<1, threads>>>(in, out);
  std::printf("%s: %s\n", argc > 1 ? argv[1] : "nothing", cudaGetErrorString(cudaDeviceSynchronize()));
}
