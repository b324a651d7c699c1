// Softmax of 16,384 rows of 4,096 bf16 numbers.

#include "rose/kernels/gpu/softmax.h"
#include "labs/gpu/rows_bench.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  using rose::kernels::DType;
  const BenchArray x(2, 16'384, 4096, DType::bf16), y(2, 16'384, 4096, DType::bf16);
  std::vector<MemoryCase> cases;
  for (const std::int64_t c : {4096, 1024, 8192, 32'768, 131'072}) {
    const auto shaped = [c](gpu::Matrix m) {
      m.rows = m.rows * m.cols / c, m.cols = c;
      return m;
    };
    cases.push_back(
        {"softmax of " + std::to_string(c), 16'384.0 * 4096 * 4, 2,
         [=, &x, &y](int i, gpu::Stream s) { softmax(shaped(x.at(i)), shaped(y.at(i)), s); }});
  }
  return memory_bench(argc, argv, cases);
}
