// RMSNorm backward of 16,384 rows of 4,096 bf16 numbers.

#include "labs/gpu/rows_bench.h"
#include "rose/kernels/gpu/norm.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  using rose::kernels::DType;
  std::vector<MemoryCase> cases;
  const BenchArray x(2, 16'384, 4096, DType::bf16), dy(2, 16'384, 4096, DType::bf16),
      dx(2, 16'384, 4096, DType::bf16), w(1, 1, 65'536, DType::bf16),
      statistics(1, 1, 16'384 * 32, DType::f32), sums(1, 2, 65'536, DType::f32);
  const gpu::Buffer memory(gpu::norm_backward_workspace(16'384, 65'536));
  const auto* inv = static_cast<const float*>(statistics.at(0).data);
  auto* const dw = static_cast<float*>(sums.at(0).data);
  for (const std::int64_t c : {4096, 128, 1024, 2048, 8192, 16'384}) {
    const auto shaped = [c](gpu::Matrix m) {
      m.rows = m.rows * m.cols / c, m.cols = c;
      return m;
    };
    const gpu::Matrix weight{.data = w.at(0).data, .dtype = DType::bf16, .rows = 1, .cols = c};
    const double bytes = 16'384.0 * 4096 * 2;
    const std::string width = " of " + std::to_string(c);
    cases.push_back({"rmsnorm_backward" + width, 3 * bytes, 2,
                     [=, &x, &dy, &dx, &memory](int i, gpu::Stream s) {
                       rmsnorm_backward(shaped(x.at(i)), weight, inv, shaped(dy.at(i)), {},
                                        shaped(dx.at(i)), dw, memory.workspace(), s);
                     }});
    cases.push_back({"layernorm_backward" + width, 3 * bytes, 2,
                     [=, &x, &dy, &dx, &memory](int i, gpu::Stream s) {
                       layernorm_backward(shaped(x.at(i)), weight, inv, inv, shaped(dy.at(i)), {},
                                          shaped(dx.at(i)), dw, dw + 65'536, memory.workspace(), s);
                     }});
  }
  return memory_bench(argc, argv, cases);
}
