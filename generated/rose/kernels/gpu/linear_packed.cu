// Unpack sixteen numbers of a row.

#include <cuda_fp8.h>

#include <algorithm>

#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/linear_packed.h"

namespace rose::kernels::gpu {

namespace {

constexpr int run = 16;       // numbers that a thread unpacks
constexpr int terms = 64;     // K of a step
constexpr int columns = 32;   // of a block
constexpr int threads = 128;  // columns * terms / run: one run each
constexpr int pitch = terms + 8;

/// Sixteen stored numbers, as they came: bf16 needs two words of 16 bytes, the others one or less.
struct Stored {
  uint4 words[2];
};

enum class Kind { bf16, int8, int4, fp8 };

template <Kind K>
__device__ __forceinline__ Stored load_run(const void* row, int k) {
  Stored s{};
  const auto* bytes = static_cast<const unsigned char*>(row);
  if constexpr (K == Kind::int4) {
    const uint2 half = *reinterpret_cast<const uint2*>(bytes + k / 2);
    s.words[0].x = half.x;
    s.words[0].y = half.y;
  } else {
    s.words[0] = *reinterpret_cast<const uint4*>(bytes + k);
  }
  return s;
}

template <Kind K>
__device__ __forceinline__ float number(const Stored& s, int i, int zero) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(s.words);
  if constexpr (K == Kind::int8) {
    return static_cast<float>(static_cast<signed char>(bytes[i]));
  } else if constexpr (K == Kind::int4) {
    return static_cast<float>(static_cast<int>(bytes[i / 2] >> (i % 2 * 4) & 15) - zero);
  } else {
    __nv_fp8_e4m3 value;
    value.__x = bytes[i];
    return static_cast<float>(value);
  }
}

/// Unpacks a run to shared memory.
template <Kind K>
__device__ __forceinline__ void store_run(const Stored& s, float scale, int zero,
                                          __nv_bfloat16* to) {
  uint4 out[2];
  if constexpr (K == Kind::bf16) {
    out[0] = s.words[0];
    out[1] = s.words[1];
  } else {
    std::uint32_t words[run / 2];
#pragma unroll
    for (int i = 0; i < run; i += 2) {
      words[i / 2] =
          pack<__nv_bfloat16>(number<K>(s, i, zero) * scale, number<K>(s, i + 1, zero) * scale);
    }
    out[0] = make_uint4(words[0], words[1], words[2], words[3]);
    out[1] = make_uint4(words[4], words[5], words[6], words[7]);
  }
  reinterpret_cast<uint4*>(to)[0] = out[0];
  reinterpret_cast<uint4*>(to)[1] = out[1];
}

// What a block works on.
struct Work {
  const __nv_bfloat16* x;
  __nv_bfloat16* y;
  std::int64_t x_stride, y_stride;
  int m, n, k;
  // One weight for all rows …
  const void* weight;
  const float* scales;
  const std::uint8_t* zeros;
  int scale_group, scales_per_row;
  std::int64_t weight_row_bytes;
  const __nv_bfloat16* bias;
  // … or one for each group of rows
  const void* const* weights;
  const std::int32_t* offsets;
  const float* factors;  // y += factor * product, with its roundings; null: y = product
};

template <int Rows>
struct Tile {
  __nv_bfloat16 x[2][Rows * pitch];
  __nv_bfloat16 w[2][columns * pitch];
};

/// Starts the copies of a step of x; what lies beyond the edges becomes zero.
template <int Rows>
__device__ __forceinline__ void load_x(__nv_bfloat16* to, const Work& o, int row, int end, int k) {
#pragma unroll
  for (int i = threadIdx.x; i < Rows * terms / 8; i += threads) {
    const int r = i / (terms / 8), c = i % (terms / 8) * 8;
    const bool inside = row + r < end && k + c < o.k;
    const __nv_bfloat16* from = inside ? o.x + (row + r) * o.x_stride + k + c : o.x;
    copy_async_16(shared_address(to + r * pitch + c), from, inside ? 16 : 0);
  }
  copy_async_commit();
}

// Multiply, unpacking one step ahead.

/// Four warps share the block's columns, eight each.
template <Kind K, int Rows>
__global__ void __launch_bounds__(threads) packed_kernel(const Work o) {
  __shared__ __align__(16) Tile<Rows> tile;
  const int group = blockIdx.z;
  const void* weight = o.weights != nullptr ? o.weights[group] : o.weight;
  const int begin = o.offsets != nullptr ? o.offsets[group] : 0;
  const int end = o.offsets != nullptr ? min(o.offsets[group + 1], o.m) : o.m;
  const int row = begin + blockIdx.y * Rows, column = blockIdx.x * columns;
  if (weight == nullptr || row >= end) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int my_column = threadIdx.x / (terms / run), my_k = threadIdx.x % (terms / run) * run;
  const bool inside = column + my_column < o.n;
  const auto* my_row = static_cast<const unsigned char*>(weight) +
                       (inside ? column + my_column : 0) * o.weight_row_bytes;
  const auto fetch = [&](int k, float& scale, int& zero) {
    Stored s{};
    scale = 0;
    const int at = k + my_k;
    if (!inside || at >= o.k) return s;
    if constexpr (K == Kind::bf16) {  // K is a multiple of 8: a run may end half way
      s.words[0] = *reinterpret_cast<const uint4*>(my_row + 2 * at);
      if (at + 8 < o.k) s.words[1] = *reinterpret_cast<const uint4*>(my_row + 2 * at + 16);
    } else {
      s = load_run<K>(my_row, at);
      const std::int64_t of_group =
          static_cast<std::int64_t>(column + my_column) * o.scales_per_row + at / o.scale_group;
      scale = o.scales[of_group];
      if constexpr (K == Kind::int4) {
        constexpr int middle = 8;
        zero = o.zeros != nullptr ? o.zeros[of_group] : middle;
      }
    }
    return s;
  };
  float scale = 0;
  int zero = 0;
  Stored stored = fetch(0, scale, zero);
  load_x<Rows>(tile.x[0], o, row, end, 0);
  float sum[Rows / 16][4] = {};
  int current = 0;
  for (int k = 0; k < o.k; k += terms) {
    store_run<K>(stored, scale, zero, tile.w[current] + my_column * pitch + my_k);
    copy_async_wait<0>();
    __syncthreads();
    if (k + terms < o.k) {
      stored = fetch(k + terms, scale, zero);
      load_x<Rows>(tile.x[current ^ 1], o, row, end, k + terms);
    }
#pragma unroll
    for (int step = 0; step < terms; step += 16) {
      std::uint32_t b[2];
      ldmatrix_x2(b, shared_address(tile.w[current] + (8 * warp + lane % 8) * pitch + step +
                                    lane / 8 % 2 * 8));
#pragma unroll
      for (int i = 0; i < Rows / 16; ++i) {
        std::uint32_t a[4];
        ldmatrix_x4(a, shared_address(tile.x[current] + (16 * i + lane % 16) * pitch + step +
                                      lane / 16 * 8));
        mma_16x8x16<__nv_bfloat16>(sum[i], a, b[0], b[1]);
      }
    }
    current ^= 1;
  }
#pragma unroll
  for (int i = 0; i < Rows / 16; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int r = row + 16 * i + lane / 4 + e / 2 * 8,
                c = column + 8 * warp + lane % 4 * 2 + e % 2;
      if (r >= end || c >= o.n) continue;
      __nv_bfloat16* to = o.y + r * o.y_stride + c;
      float v = sum[i][e];
      if (o.bias != nullptr) v += to_float(o.bias[c]);
      v = round_to<__nv_bfloat16>(v);
      if (o.factors != nullptr) v = round_to<__nv_bfloat16>(v * o.factors[group]) + to_float(*to);
      *to = from_float<__nv_bfloat16>(v);
    }
  }
}

// Launch.
template <Kind K>
void launch(const Work& o, std::int64_t groups, cudaStream_t stream) {
  constexpr int few = 16, many = 64;
  const int rows = o.m <= few ? few : many;
  const dim3 grid(static_cast<unsigned>(ceil_div(o.n, columns)),
                  static_cast<unsigned>(ceil_div(o.m, rows)), static_cast<unsigned>(groups));
  if (rows == few) {
    packed_kernel<K, few><<<grid, threads, 0, stream>>>(o);
  } else {
    packed_kernel<K, many><<<grid, threads, 0, stream>>>(o);
  }
  ROSE_LAUNCH_CHECK("linear, packed");
}

}  // namespace

void launch_packed(const Matrix& x, const PackedWeight& w, const void* bias, const Matrix& y,
                   Stream stream) {
  Work o{};
  o.x = static_cast<const __nv_bfloat16*>(x.data);
  o.y = static_cast<__nv_bfloat16*>(y.data);
  o.x_stride = x.row_stride();
  o.y_stride = y.row_stride();
  o.m = static_cast<int>(x.rows);
  o.n = static_cast<int>(w.rows);
  o.k = static_cast<int>(w.cols);
  o.weight = w.data;
  o.scales = w.scales;
  o.zeros = w.zeros;
  o.scale_group = static_cast<int>(w.group == 0 ? std::max<std::int64_t>(w.cols, 1) : w.group);
  o.scales_per_row = static_cast<int>(ceil_div(w.cols, o.scale_group));
  o.weight_row_bytes = w.format == WeightFormat::int4 ? w.cols / 2 : w.cols;
  o.bias = static_cast<const __nv_bfloat16*>(bias);
  switch (w.format) {
    case WeightFormat::int8: return launch<Kind::int8>(o, 1, to_cuda(stream));
    case WeightFormat::int4: return launch<Kind::int4>(o, 1, to_cuda(stream));
    case WeightFormat::fp8_e4m3: return launch<Kind::fp8>(o, 1, to_cuda(stream));
  }
}

void launch_adapters(const Matrix& x, const Adapters& adapters, const Matrix& y,
                     Workspace workspace, Stream stream) {
  Work o{};
  o.x = static_cast<const __nv_bfloat16*>(x.data);
  o.y = static_cast<__nv_bfloat16*>(workspace.data);
  o.x_stride = x.row_stride();
  o.y_stride = adapters.rank;
  o.m = static_cast<int>(x.rows);
  o.n = static_cast<int>(adapters.rank);
  o.k = static_cast<int>(x.cols);
  o.weights = adapters.a;
  o.offsets = adapters.offsets;
  o.weight_row_bytes = 2 * x.cols;
  launch<Kind::bf16>(o, adapters.count, to_cuda(stream));
  o.x = o.y;
  o.x_stride = adapters.rank;
  o.y = static_cast<__nv_bfloat16*>(y.data);
  o.y_stride = y.row_stride();
  o.n = static_cast<int>(y.cols);
  o.k = static_cast<int>(adapters.rank);
  o.weights = adapters.b;
  o.weight_row_bytes = 2 * adapters.rank;
  o.factors = adapters.scales;
  launch<Kind::bf16>(o, adapters.count, to_cuda(stream));
}

}  // namespace rose::kernels::gpu
