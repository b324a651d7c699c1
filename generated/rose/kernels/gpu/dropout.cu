// Four neighbours by a thread.

#include "rose/kernels/gpu/dropout.h"
#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/philox.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kFour = 4;  // words of a block of Philox

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride,
                   std::int64_t rows, std::int64_t cols, std::uint64_t seed, std::uint64_t stream,
                   std::uint32_t threshold, float factor) {
  const std::int64_t block = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t first = block * kFour;
  if (first >= rows * cols) return;
  const uint4 words = threshold == 0 ? make_uint4(0, 0, 0, 0)
                                     : philox(seed, stream, static_cast<std::uint64_t>(block));
  const std::uint32_t word[kFour] = {words.x, words.y, words.z, words.w};
  for (int i = 0; i < kFour && first + i < rows * cols; ++i) {
    const std::int64_t row = (first + i) / cols, col = (first + i) % cols;
    const float value = to_float(x[row * x_stride + col]) * factor;
    y[row * y_stride + col] = from_float<T>(word[i] < threshold ? 0.0f : value);
  }
}

}  // namespace

void launch_dropout(const Matrix& x, const Dropout& how, const Matrix& out, Stream stream) {
  with_activation(x.dtype, [&]<class T>(T*) {
    const std::int64_t blocks = ceil_div(x.rows * x.cols, std::int64_t{kThreads} * kFour);
    dropout_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, to_cuda(stream)>>>(
        static_cast<const T*>(x.data), x.row_stride(), static_cast<T*>(out.data), out.row_stride(),
        x.rows, x.cols, how.seed, how.stream, how.threshold(), how.factor());
    ROSE_LAUNCH_CHECK("dropout");
  });
}

}  // namespace rose::kernels::gpu
