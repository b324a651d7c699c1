// What stands between the products.

#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/muon.h"
#include "rose/kernels/gpu/philox.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::int64_t elements) {
  return static_cast<unsigned>(ceil_div(elements, kThreads));
}

// Element by element.
template <class G>
__global__ void __launch_bounds__(kThreads)
    muon_momentum_kernel(const G* gradient, const float* scale, float* momentum, float* update,
                         std::int64_t count, MuonStep step) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float g = to_float(gradient[i]) * (scale != nullptr ? *scale : 1.0f);
  const MuonMomentum next = muon_momentum(momentum[i], g, step);
  momentum[i] = next.momentum;
  update[i] = next.update;
}

__global__ void __launch_bounds__(kThreads)
    muon_square_kernel(const float* square, float b, float c, __nv_bfloat16* gram, int size,
                       std::int64_t stride) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::int64_t{size} * size) return;
  __nv_bfloat16& at = gram[i / size * stride + i % size];
  at = __float2bfloat16_rn(muon_sum(b, to_float(at), c, square[i]));
}

// Compute the next matrix, and write it in both layouts.
constexpr int kTile = 32, kTileRows = 8;

/// kStart: x = from / max(*length, value); else x = value x + from. turned = the transpose of x.
template <bool kStart>
__global__ void __launch_bounds__(kTile* kTileRows)
    muon_turn_kernel(const float* from, const float* length, float value, Matrix x, Matrix turned) {
  __shared__ float tile[kTile][kTile + 1];
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile, col = std::int64_t{blockIdx.x} * kTile;
  auto* const to = static_cast<__nv_bfloat16*>(x.data);
  const float divisor = kStart ? fmaxf(*length, value) : 1.0f;
  ROSE_UNROLL()
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const std::int64_t r = row + i, c = col + threadIdx.x;
    if (r >= x.rows || c >= x.cols) continue;
    __nv_bfloat16& at = to[r * x.stride + c];
    const float of = from[r * x.cols + c];
    at = __float2bfloat16_rn(kStart ? of / divisor : muon_sum(value, to_float(at), 1.0f, of));
    tile[i][threadIdx.x] = to_float(at);
  }
  __syncthreads();
  auto* const other = static_cast<__nv_bfloat16*>(turned.data);
  ROSE_UNROLL()
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const std::int64_t r = col + i, c = row + threadIdx.x;
    if (r < x.cols && c < x.rows)
      other[r * turned.stride + c] = __float2bfloat16_rn(tile[threadIdx.x][i]);
  }
}

// Step along the direction.
struct MuonFinish {
  void* weight;
  __nv_bfloat16* copy;
  const __nv_bfloat16* direction;
  std::int64_t rows, cols, stride;
  bool by_chance, half_copy;
  std::uint64_t seed, stream, first_element;
};

template <class W>
__global__ void __launch_bounds__(kThreads) muon_finish_kernel(MuonFinish f, MuonStep step) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= f.rows * f.cols) return;
  W& weight = static_cast<W*>(f.weight)[i];
  const float direction = to_float(f.direction[i / f.cols * f.stride + i % f.cols]);
  const float updated = muon_weight(to_float(weight), direction, step);
  if constexpr (sizeof(W) == sizeof(float)) {
    weight = updated;
    if (f.copy != nullptr) f.copy[i] = sixteen_bits(updated, f.half_copy);
  } else {
    const std::uint64_t element = f.first_element + static_cast<std::uint64_t>(i);
    weight = f.by_chance ? to_bf16_stochastic(updated, rounding_bits(f.seed, f.stream, element))
                         : __float2bfloat16_rn(updated);
  }
}

}  // namespace

// Launch them.
void launch_muon_momentum(const MuonParameter& p, const MuonStep& step, const float* scale,
                          float* update, Stream stream) {
  const std::int64_t count = p.weight.rows * p.weight.cols;
  with_activation(p.gradient.dtype, [&]<class G>(G*) {
    muon_momentum_kernel<<<blocks_for(count), kThreads, 0, to_cuda(stream)>>>(
        static_cast<const G*>(p.gradient.data), scale, p.first, update, count, step);
  });
  ROSE_LAUNCH_CHECK("muon");
}

void launch_muon_square(const float* square, float b, float c, const Matrix& gram, Stream stream) {
  muon_square_kernel<<<blocks_for(gram.rows * gram.rows), kThreads, 0, to_cuda(stream)>>>(
      square, b, c, static_cast<__nv_bfloat16*>(gram.data), static_cast<int>(gram.rows),
      gram.stride);
  ROSE_LAUNCH_CHECK("muon");
}

template <bool kStart>
void launch_turn(const float* from, const float* length, float value, const Matrix& x,
                 const Matrix& turned, Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(x.cols, kTile)),
                  static_cast<unsigned>(ceil_div(x.rows, kTile)));
  muon_turn_kernel<kStart>
      <<<grid, dim3(kTile, kTileRows), 0, to_cuda(stream)>>>(from, length, value, x, turned);
  ROSE_LAUNCH_CHECK("muon");
}

void launch_muon_start(const float* from, const float* length, float epsilon, const Matrix& x,
                       const Matrix& turned, Stream stream) {
  launch_turn<true>(from, length, epsilon, x, turned, stream);
}

void launch_muon_move(const float* moved, float a, const Matrix& x, const Matrix& turned,
                      Stream stream) {
  launch_turn<false>(moved, nullptr, a, x, turned, stream);
}

void launch_muon_finish(const MuonParameter& p, const MuonStep& step, const Matrix& direction,
                        Stream stream) {
  const MuonFinish f{p.weight.data,
                     static_cast<__nv_bfloat16*>(p.copy.data),
                     static_cast<const __nv_bfloat16*>(direction.data),
                     p.weight.rows,
                     p.weight.cols,
                     direction.stride,
                     p.by_chance,
                     p.copy.dtype == DType::f16,
                     p.key.seed,
                     rounding_stream(p.key),
                     static_cast<std::uint64_t>(p.key.first_element)};
  with_element(p.weight.dtype, [&]<class W>(W*) {
    muon_finish_kernel<W><<<blocks_for(f.rows * f.cols), kThreads, 0, to_cuda(stream)>>>(f, step);
  });
  ROSE_LAUNCH_CHECK("muon");
}

}  // namespace rose::kernels::gpu
