// Apply a small function to every position.

#include <utility>

#include "rose/kernels/gpu/activation.cuh"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/philox.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;  // groups of each input that a thread has in flight
constexpr std::int64_t kBlock = std::int64_t{kThreads} * kUnroll * group_size;  // elements

// Load, widen, apply, round, store.
template <int kInputs, int kOutputs>
struct Streams {
  const void* in[kInputs];
  void* out[kOutputs];
  std::int64_t in_stride[kInputs], out_stride[kOutputs];
  std::int64_t cols;
  unsigned chunks;  // blocks in a row
};

/// F::operator()<In>(x, y): y of the inputs x at one position; In is what intermediate results round to.
template <bool kWide, class In, class Out, class F>
__global__ void __launch_bounds__(kThreads) map_kernel(Streams<F::inputs, F::outputs> s, F f) {
  const std::int64_t row = blockIdx.x / s.chunks;
  const std::int64_t first =
      blockIdx.x % s.chunks * kBlock + static_cast<std::int64_t>(threadIdx.x) * group_size;
  Group<In> in[kUnroll][F::inputs];
  ROSE_UNROLL()
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t col = first + u * kThreads * group_size;
    ROSE_UNROLL()
    for (int i = 0; i < F::inputs; ++i) {
      const In* from = static_cast<const In*>(s.in[i]) + row * s.in_stride[i] + col;
      in[u][i] = load_group<kWide>(from, s.cols - col);
    }
  }
  ROSE_UNROLL()
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t col = first + u * kThreads * group_size;
    if (col >= s.cols) return;
    Group<Out> out[F::outputs];
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      float x[F::inputs], y[F::outputs];
      ROSE_UNROLL()
      for (int i = 0; i < F::inputs; ++i) x[i] = to_float(in[u][i].at[e]);
      f.template operator()<In>(x, y);
      ROSE_UNROLL()
      for (int i = 0; i < F::outputs; ++i) out[i].at[e] = from_float<Out>(y[i]);
    }
    ROSE_UNROLL()
    for (int i = 0; i < F::outputs; ++i) {
      Out* to = static_cast<Out*>(s.out[i]) + row * s.out_stride[i] + col;
      store_group<kWide>(to, out[i], s.cols - col);
    }
  }
}

// Lay the rows out over blocks.
template <class In, class Out, class F>
void launch_map(const Matrix (&in)[F::inputs], const Matrix (&out)[F::outputs], F f,
                Stream stream) {
  Streams<F::inputs, F::outputs> s{};
  bool contiguous = true, wide = true;
  const auto look = [&](const Matrix& m) {
    contiguous = contiguous && (m.row_stride() == m.cols || m.rows == 1);
    wide = wide && is_wide(m);
  };
  for (const Matrix& m : in) look(m);
  for (const Matrix& m : out) look(m);
  std::int64_t rows = in[0].rows;
  s.cols = in[0].cols;
  if (contiguous) {
    s.cols *= std::exchange(rows, 1);
    wide = s.cols % group_size == 0;
    for (const Matrix& m : in) wide = wide && is_wide_pointer(m.data);
    for (const Matrix& m : out) wide = wide && is_wide_pointer(m.data);
  }
  for (int i = 0; i < F::inputs; ++i) s.in[i] = in[i].data, s.in_stride[i] = in[i].row_stride();
  for (int i = 0; i < F::outputs; ++i)
    s.out[i] = out[i].data, s.out_stride[i] = out[i].row_stride();
  s.chunks = static_cast<unsigned>(ceil_div(s.cols, kBlock));
  const auto blocks = static_cast<unsigned>(rows * s.chunks);
  if (wide) {
    map_kernel<true, In, Out><<<blocks, kThreads, 0, to_cuda(stream)>>>(s, f);
  } else {
    map_kernel<false, In, Out><<<blocks, kThreads, 0, to_cuda(stream)>>>(s, f);
  }
  ROSE_LAUNCH_CHECK("elementwise");
}

// What each operation computes at one position.
struct Add {
  static constexpr int inputs = 2, outputs = 1;
  template <class T>
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = x[0] + x[1];
  }
};

struct SiluMultiply {
  static constexpr int inputs = 2, outputs = 1;
  template <class T>
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = round_to<T>(silu(x[0])) * x[1];
  }
};

struct SiluMultiplyBackward {
  static constexpr int inputs = 3, outputs = 2;
  template <class T>
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    y[0] = x[2] * x[1] * silu_slope(x[0]);
    y[1] = x[2] * silu(x[0]);
  }
};

struct Silu {
  static constexpr int inputs = 1, outputs = 1;
  template <class T>
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = silu(x[0]);
  }
};

struct SiluBackward {
  static constexpr int inputs = 2, outputs = 1;
  template <class T>
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = x[1] * silu_slope(x[0]);
  }
};

template <Gelu kKind>
struct GeluForward {
  static constexpr int inputs = 1, outputs = 1;
  template <class T>
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = kKind == Gelu::exact ? gelu_exact(x[0]) : gelu_tanh(x[0]);
  }
};

template <Gelu kKind>
struct GeluBackward {
  static constexpr int inputs = 2, outputs = 1;
  template <class T>
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = x[1] * (kKind == Gelu::exact ? gelu_exact_slope(x[0]) : gelu_tanh_slope(x[0]));
  }
};

struct Copy {
  static constexpr int inputs = 1, outputs = 1;
  template <class T>
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = x[0];
  }
};

template <bool kWide>
__global__ void __launch_bounds__(kThreads)
    stochastic_kernel(const float* x, std::int64_t x_stride, __nv_bfloat16* y,
                      std::int64_t y_stride, std::int64_t cols, unsigned chunks, std::uint64_t seed,
                      std::uint64_t stream, std::uint64_t first_element) {
  const std::int64_t row = blockIdx.x / chunks;
  const std::int64_t col =
      (std::int64_t{blockIdx.x % chunks} * kThreads + threadIdx.x) * group_size;
  if (col >= cols) return;
  const Group<float> in = load_group<kWide>(x + row * x_stride + col, cols - col);
  const std::uint64_t element = first_element + static_cast<std::uint64_t>(row * cols + col);
  Group<__nv_bfloat16> out;
  if (element % group_size == 0) {
    const uint4 words = philox(seed, stream, element / group_size);
    const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      out.at[e] = to_bf16_stochastic(in.at[e], e % 2 == 0 ? word[e / 2] : word[e / 2] >> 16);
  } else {
    for (int e = 0; e < group_size; ++e)
      out.at[e] = to_bf16_stochastic(
          in.at[e], rounding_bits(seed, stream, element + static_cast<unsigned>(e)));
  }
  store_group<kWide>(y + row * y_stride + col, out, cols - col);
}

}  // namespace

// Choose types and functions.
void launch_add(const Matrix& a, const Matrix& b, const Matrix& out, Stream stream) {
  with_activation(a.dtype, [&]<class T>(T*) { launch_map<T, T>({a, b}, {out}, Add{}, stream); });
}

void launch_silu_multiply(const Matrix& gate, const Matrix& up, const Matrix& out, Stream stream) {
  with_activation(gate.dtype, [&]<class T>(T*) {
    launch_map<T, T>({gate, up}, {out}, SiluMultiply{}, stream);
  });
}

void launch_silu_multiply_backward(const Matrix& gate, const Matrix& up, const Matrix& dy,
                                   const Matrix& dgate, const Matrix& dup, Stream stream) {
  with_activation(gate.dtype, [&]<class T>(T*) {
    launch_map<T, T>({gate, up, dy}, {dgate, dup}, SiluMultiplyBackward{}, stream);
  });
}

void launch_silu(const Matrix& x, const Matrix& out, Stream stream) {
  with_activation(x.dtype, [&]<class T>(T*) { launch_map<T, T>({x}, {out}, Silu{}, stream); });
}

void launch_silu_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, Stream stream) {
  with_activation(x.dtype, [&]<class T>(T*) {
    launch_map<T, T>({x, dy}, {dx}, SiluBackward{}, stream);
  });
}

void launch_gelu(const Matrix& x, const Matrix& out, Gelu kind, Stream stream) {
  with_activation(x.dtype, [&]<class T>(T*) {
    if (kind == Gelu::exact) {
      launch_map<T, T>({x}, {out}, GeluForward<Gelu::exact>{}, stream);
    } else {
      launch_map<T, T>({x}, {out}, GeluForward<Gelu::tanh>{}, stream);
    }
  });
}

void launch_gelu_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, Gelu kind,
                          Stream stream) {
  with_activation(x.dtype, [&]<class T>(T*) {
    if (kind == Gelu::exact) {
      launch_map<T, T>({x, dy}, {dx}, GeluBackward<Gelu::exact>{}, stream);
    } else {
      launch_map<T, T>({x, dy}, {dx}, GeluBackward<Gelu::tanh>{}, stream);
    }
  });
}

void launch_cast(const Matrix& x, const Matrix& out, Stream stream) {
  with_activation(x.dtype, [&]<class In>(In*) {
    with_activation(out.dtype,
                    [&]<class Out>(Out*) { launch_map<In, Out>({x}, {out}, Copy{}, stream); });
  });
}

void launch_cast_stochastic(const Matrix& x, const RoundingKey& key, const Matrix& out,
                            Stream stream) {
  const auto chunks = static_cast<unsigned>(ceil_div(x.cols, std::int64_t{kThreads} * group_size));
  const auto blocks = static_cast<unsigned>(x.rows) * chunks;
  const auto launch = [&](auto kernel) {
    kernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(
        static_cast<const float*>(x.data), x.row_stride(), static_cast<__nv_bfloat16*>(out.data),
        out.row_stride(), x.cols, chunks, key.seed, rounding_stream(key),
        static_cast<std::uint64_t>(key.first_element));
    ROSE_LAUNCH_CHECK("cast_stochastic");
  };
  all_wide(x, out) ? launch(stochastic_kernel<true>) : launch(stochastic_kernel<false>);
}

}  // namespace rose::kernels::gpu
