// Cross-entropy in place of 4,096 rows of 151,936 logits.

#include "labs/gpu/gpu_test.h"
#include "labs/gpu/rows_bench.h"
#include "rose/kernels/gpu/cross_entropy.h"

// Compare the gradient of a few rows with double precision.

/// The largest error of a probability, relative to it.
boost::json::object gradient_error(std::int64_t v) {
  namespace gpu = rose::kernels::gpu;
  constexpr std::int64_t rows = 4;
  const std::vector<float> values = gpu::random_values(rows * v, 1, 4);
  const std::vector<std::int32_t> first(rows, 0);  // the target of every row
  const auto z = gpu::DeviceMatrix::of(values, rows, v, rose::kernels::DType::f32);
  const gpu::Buffer targets = gpu::Buffer::of(std::span<const std::int32_t>(first));
  gpu::cross_entropy(z.view(), targets.as<std::int32_t>(), 1.0f, z.view(), nullptr, nullptr, {});
  const std::vector<float> slope = z.values();
  double worst = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto* const row = values.data() + r * static_cast<std::size_t>(v);
    double sum = 0;
    for (std::int64_t c = 0; c < v; ++c) sum += std::exp(double{row[c]});
    for (std::int64_t c = 1; c < v; ++c) {  // the target's has 1 taken off
      const double p = std::exp(double{row[c]}) / sum;
      const double ours =
          double{slope[r * static_cast<std::size_t>(v) + static_cast<std::size_t>(c)]};
      worst = std::max(worst, std::abs(ours - p) / p);
    }
  }
  return {{"against", "probabilities of 4 rows in double precision, relative, at the worst column"},
          {"error", worst},
          {"bound", 1e-4}};
}

int main(int argc, char** argv) {
  using namespace rose::labs;
  using rose::kernels::DType;
  constexpr std::int64_t rows = 4096, widest = 151'936;
  const BenchArray z(2, rows, widest, DType::f32), narrow(2, rows, widest, DType::bf16);
  const std::vector<std::int32_t> ids(rows, 1234);
  const gpu::Buffer targets = gpu::Buffer::of(std::span<const std::int32_t>(ids)),
                    out(rows * sizeof(float));
  const auto* const t = targets.as<std::int32_t>();
  auto* const scores = out.as<float>();
  std::vector<MemoryCase> cases;
  for (const std::int64_t v :
       {std::int64_t{151'936}, std::int64_t{50'304}, std::int64_t{128'256}, std::int64_t{32'000}}) {
    const auto shaped = [v](gpu::Matrix m, std::int64_t r) {
      m.rows = r, m.cols = v;
      return m;
    };
    const std::string width = " of " + std::to_string(v);
    const double logits = static_cast<double>(rows * v);
    cases.push_back(
        {"cross_entropy in place" + width, 8 * logits, 2, [=, &z](int i, gpu::Stream s) {
           cross_entropy(shaped(z.at(i), rows), t, 1.0f, shaped(z.at(i), rows), scores, nullptr, s);
         }});
    cases.push_back(
        {"cross_entropy to bf16" + width, 6 * logits, 2, [=, &z, &narrow](int i, gpu::Stream s) {
           cross_entropy(shaped(z.at(i), rows), t, 1.0f, shaped(narrow.at(i), rows), scores,
                         nullptr, s);
         }});
    cases.push_back({"token_logprob" + width, 4 * logits, 2, [=, &z](int i, gpu::Stream s) {
                       token_logprob(shaped(z.at(i), rows), t, scores, nullptr, s);
                     }});
    cases.push_back({"token_logprob, 64 rows" + width, 256.0 * static_cast<double>(v), 2,
                     [=, &z](int i, gpu::Stream s) {
                       token_logprob(shaped(z.at(i), 64), t, scores, nullptr, s);
                     }});
  }
  return memory_bench(argc, argv, cases, false, gradient_error(widest));
}
