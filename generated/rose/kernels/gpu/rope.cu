// Turn all heads of a token.

#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/rope.cuh"
#include "rose/kernels/gpu/rope.h"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 128;

__global__ void rope_table_kernel(const std::int32_t* positions, std::int64_t count,
                                  const float* inv_freq, std::int64_t pairs, float scale,
                                  float* cos, float* sin) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const Turn turn = rope_turn(positions[i / pairs], inv_freq[i % pairs], scale);
  cos[i] = turn.cos;
  sin[i] = turn.sin;
}

// Eight pairs, or four, at a time.
template <class T, bool kHalf, bool kWide>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(T* x, std::int64_t stride, int heads, int head_dim, const float* cos,
                const float* sin, float direction) {
  const int pairs = head_dim / 2;
  const int reach =
      kHalf ? pairs : head_dim;  // of the elements that threads divide among themselves
  const int groups = (reach + group_size - 1) / group_size;
  const float* c = cos + std::int64_t{blockIdx.x} * pairs;
  const float* s = sin + std::int64_t{blockIdx.x} * pairs;
  T* token = x + blockIdx.x * stride;
  for (int item = threadIdx.x; item < heads * groups; item += kThreads) {
    const int col = item % groups * group_size, left = reach - col;
    T* first = token + item / groups * head_dim + col;
    Group<T> a = load_group<kWide>(first, left);
    if constexpr (kHalf) {
      Group<T> b = load_group<kWide>(first + pairs, left);
      const Group<float> turn_c = load_group<kWide>(c + col, left),
                         turn_s = load_group<kWide>(s + col, left);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float2 turned = rope_pair(to_float(a.at[e]), to_float(b.at[e]),
                                        {turn_c.at[e], direction * turn_s.at[e]});
        a.at[e] = from_float<T>(turned.x);
        b.at[e] = from_float<T>(turned.y);
      }
      store_group<kWide>(first + pairs, b, left);
    } else {
      ROSE_UNROLL()
      for (int e = 0; e < group_size; e += 2) {
        const int pair = (col + e) / 2;
        const Turn turn = pair < pairs ? Turn{c[pair], direction * s[pair]} : Turn{};
        const float2 turned = rope_pair(to_float(a.at[e]), to_float(a.at[e + 1]), turn);
        a.at[e] = from_float<T>(turned.x);
        a.at[e + 1] = from_float<T>(turned.y);
      }
    }
    store_group<kWide>(first, a, left);
  }
}

}  // namespace

// Choose layout and access.
void launch_rope_table(const std::int32_t* positions, std::int64_t tokens, const float* inv_freq,
                       std::int64_t pairs, float scale, float* cos, float* sin, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(tokens * pairs, kThreads));
  rope_table_kernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(positions, tokens * pairs, inv_freq,
                                                              pairs, scale, cos, sin);
  ROSE_LAUNCH_CHECK("rope_table");
}

void launch_rope(const Matrix& x, std::int64_t head_dim, const float* cos, const float* sin,
                 RopePairing pairing, bool inverse, Stream stream) {
  const bool half = pairing == RopePairing::half;
  const std::int64_t reach = half ? head_dim / 2 : head_dim;
  const bool wide =
      is_wide(x) && reach % group_size == 0 && is_wide_pointer(cos) && is_wide_pointer(sin);
  with_activation(x.dtype, [&]<class T>(T*) {
    const auto launch = [&](auto kernel) {
      kernel<<<static_cast<unsigned>(x.rows), kThreads, 0, to_cuda(stream)>>>(
          static_cast<T*>(x.data), x.row_stride(), static_cast<int>(x.cols / head_dim),
          static_cast<int>(head_dim), cos, sin, inverse ? -1.0f : 1.0f);
    };
    if (half) {
      wide ? launch(rope_kernel<T, true, true>) : launch(rope_kernel<T, true, false>);
    } else {
      wide ? launch(rope_kernel<T, false, true>) : launch(rope_kernel<T, false, false>);
    }
    ROSE_LAUNCH_CHECK("rope");
  });
}

}  // namespace rose::kernels::gpu
