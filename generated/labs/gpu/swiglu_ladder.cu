// Climb the ladder.

#include "labs/gpu/swiglu_ladder.h"
#include "rose/kernels/gpu/activation.cuh"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/group.cuh"

namespace rose::labs {
namespace {

using namespace kernels::gpu;
using Number = __nv_bfloat16;
constexpr int kThreads = 256;

// One number, many numbers in turn, eight numbers.
__device__ __forceinline__ Number bent(Number gate) {
  return from_float<Number>(silu(to_float(gate)));
}
__device__ __forceinline__ Number product(Number a, Number b) {
  return from_float<Number>(to_float(a) * to_float(b));
}
__device__ __forceinline__ std::int64_t own_index() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__global__ void silu_kernel(const Number* gate, Number* out, std::int64_t count) {
  if (const std::int64_t i = own_index(); i < count) out[i] = bent(gate[i]);
}
__global__ void multiply_kernel(const Number* a, const Number* b, Number* out, std::int64_t count) {
  if (const std::int64_t i = own_index(); i < count) out[i] = product(a[i], b[i]);
}

__global__ void fused_kernel(const Number* gate, const Number* up, Number* out,
                             std::int64_t count) {
  if (const std::int64_t i = own_index(); i < count) out[i] = product(bent(gate[i]), up[i]);
}

__global__ void stride_kernel(const Number* gate, const Number* up, Number* out,
                              std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = own_index(); i < count; i += step) out[i] = product(bent(gate[i]), up[i]);
}

__global__ void group_kernel(const Number* gate, const Number* up, Number* out,
                             std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x * group_size;
  for (std::int64_t i = own_index() * group_size; i < count; i += step) {
    Group<Number> a = load_group<true>(gate + i, count - i);
    const Group<Number> b = load_group<true>(up + i, count - i);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) a.at[e] = product(bent(a.at[e]), b.at[e]);
    store_group<true>(out + i, a, count - i);
  }
}

// Launch a rung.

/// Blocks that the device holds at once; enough for any.
constexpr unsigned kResident = 132 * 2048 / kThreads;

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>(ceil_div(count, kThreads));
}

void run_apart(const void* gate, const void* up, void* between, void* out, std::int64_t count,
               Stream stream) {
  check_swiglu(count, 1);
  if (count == 0) return;
  auto* const bends = static_cast<Number*>(between);
  silu_kernel<<<blocks_for(count), kThreads, 0, to_cuda(stream)>>>(static_cast<const Number*>(gate),
                                                                   bends, count);
  multiply_kernel<<<blocks_for(count), kThreads, 0, to_cuda(stream)>>>(
      bends, static_cast<const Number*>(up), static_cast<Number*>(out), count);
  ROSE_LAUNCH_CHECK("swiglu, apart");
}

using Kernel = void(const Number*, const Number*, Number*, std::int64_t);

template <Kernel* kKernel, bool kStrides, int kEach>
void run(const void* gate, const void* up, void*, void* out, std::int64_t count, Stream stream) {
  check_swiglu(count, kEach);
  if (count == 0) return;
  const unsigned blocks = kStrides ? kResident : blocks_for(count);
  kKernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(static_cast<const Number*>(gate),
                                                    static_cast<const Number*>(up),
                                                    static_cast<Number*>(out), count);
  ROSE_LAUNCH_CHECK("swiglu rung");
}

void run_production(const void* gate, const void* up, void*, void* out, std::int64_t count,
                    Stream stream) {
  check_swiglu(count, 1);
  const auto row = [&](const void* data) {
    return Matrix{
        .data = const_cast<void*>(data), .dtype = kernels::DType::bf16, .rows = 1, .cols = count};
  };
  silu_multiply(row(gate), row(up), row(out), stream);
}

constexpr Rung<Swiglu> ladder[] = {
    {"apart", "two kernels, the result between them in memory", run_apart},
    {"fused", "one kernel", run<fused_kernel, false, 1>},
    {"grid-stride", "as many threads as fit, each for many numbers", run<stride_kernel, true, 1>},
    {"groups", "16 bytes per access", run<group_kernel, true, group_size>},
    {"production", "two accesses of each input on the way", run_production},
};

}  // namespace

Rungs<Swiglu> swiglu_ladder() {
  return ladder;
}

}  // namespace rose::labs
