// SwiGLU of 16,384 rows of 4,096 bf16 numbers.

#include "labs/gpu/rows_bench.h"
#include "rose/kernels/gpu/elementwise.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  using rose::kernels::DType;
  constexpr std::int64_t rows = 16'384, cols = 4096;
  constexpr double elements = static_cast<double>(rows * cols);
  const BenchArray a(2, rows, cols, DType::bf16), b(2, rows, cols, DType::bf16),
      c(2, rows, cols, DType::bf16), d(2, rows, cols, DType::bf16), e(2, rows, cols, DType::bf16),
      wide(2, rows, cols, DType::f32);
  return memory_bench(
      argc, argv,
      {{"silu_multiply 16384x4096 bf16", 6 * elements, 2,
        [&](int i, gpu::Stream s) { silu_multiply(a.at(i), b.at(i), c.at(i), s); }},
       {"silu_multiply_backward", 10 * elements, 2,
        [&](int i, gpu::Stream s) {
          silu_multiply_backward(a.at(i), b.at(i), c.at(i), d.at(i), e.at(i), s);
        }},
       {"gelu tanh", 4 * elements, 2,
        [&](int i, gpu::Stream s) { gelu(a.at(i), b.at(i), rose::kernels::Gelu::tanh, s); }},
       {"gelu exact", 4 * elements, 2,
        [&](int i, gpu::Stream s) { gelu(a.at(i), b.at(i), rose::kernels::Gelu::exact, s); }},
       {"gelu_backward tanh", 6 * elements, 2,
        [&](int i, gpu::Stream s) {
          gelu_backward(a.at(i), b.at(i), c.at(i), rose::kernels::Gelu::tanh, s);
        }},
       {"add", 6 * elements, 2, [&](int i, gpu::Stream s) { add(a.at(i), b.at(i), c.at(i), s); }},
       {"cast f32 to bf16", 6 * elements, 2,
        [&](int i, gpu::Stream s) { cast(wide.at(i), c.at(i), s); }},
       {"cast f32 to bf16 by chance", 6 * elements, 2,
        [&](int i, gpu::Stream s) { cast_stochastic(wide.at(i), {.seed = 1}, c.at(i), s); }}},
      true);
}
