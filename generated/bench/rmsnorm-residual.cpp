// Residual and RMSNorm of 16,384 rows of 4,096 bf16 numbers.

#include <memory>

#include "labs/gpu/rows_bench.h"
#include "rose/kernels/gpu/norm.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  using rose::kernels::DType;
  std::vector<MemoryCase> cases;
  const auto array = [&](std::int64_t rows, std::int64_t cols) {
    return std::make_shared<BenchArray>(2, rows, cols, DType::bf16);
  };
  const auto x = array(16'384, 4096), r = array(16'384, 4096), y = array(16'384, 4096),
             w = array(1, 65'536);
  for (const std::int64_t c : {4096, 128, 1024, 2048, 8192, 16'384, 65'536}) {
    const auto shaped = [c](gpu::Matrix m) {
      m.rows = m.rows * m.cols / c, m.cols = c;
      return m;
    };
    const double bytes = 16'384.0 * 4096 * 2;
    const gpu::Matrix weight{.data = w->at(0).data, .dtype = DType::bf16, .rows = 1, .cols = c};
    const std::string width = " of " + std::to_string(c);
    cases.push_back({"add_rmsnorm" + width, 4 * bytes, 2, [=](int i, gpu::Stream s) {
                       add_rmsnorm(shaped(x->at(i)), shaped(r->at(i)), weight, 1e-6f,
                                   shaped(r->at(i)), shaped(y->at(i)), nullptr, s);
                     }});
    cases.push_back({"rmsnorm" + width, 2 * bytes, 2, [=](int i, gpu::Stream s) {
                       rmsnorm(shaped(x->at(i)), weight, 1e-6f, shaped(y->at(i)), nullptr, s);
                     }});
    cases.push_back({"layernorm" + width, 2 * bytes, 2, [=](int i, gpu::Stream s) {
                       layernorm(shaped(x->at(i)), weight, weight, 1e-6f, shaped(y->at(i)), nullptr,
                                 nullptr, s);
                     }});
  }
  return memory_bench(argc, argv, cases);
}
