// Choose tokens for 64 rows of 151,936 logits.

#include <memory>

#include "labs/gpu/rows_bench.h"
#include "rose/kernels/gpu/sampling.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  using rose::kernels::SamplingParams;
  constexpr std::int64_t widest = 151'936, most = 256;
  rose::core::Rng rng(1);
  std::vector<float> normal(widest);
  for (float& z : normal) z = 3.0f * rng.normal();
  gpu::Buffer logits(static_cast<std::size_t>(2 * most * widest) * sizeof(float));
  for (std::size_t r = 0; r < 2 * most; ++r)
    logits.upload(std::as_bytes(std::span(normal)), r * widest * sizeof(float));
  const gpu::Buffer tokens(most * sizeof(std::int32_t));
  auto* const chosen = tokens.as<std::int32_t>();
  std::vector<MemoryCase> cases;
  std::vector<std::shared_ptr<gpu::Buffer>> settings;
  const auto add = [&](const std::string& name, const SamplingParams& params, std::int64_t rows) {
    const std::vector<SamplingParams> all(most, params);
    settings.push_back(
        std::make_shared<gpu::Buffer>(gpu::Buffer::of(std::span<const SamplingParams>(all))));
    const auto* on_device = settings.back()->as<SamplingParams>();
    cases.push_back({name + ", " + std::to_string(rows) + " rows",
                     static_cast<double>(rows * widest) * 4, 2, [=, &logits](int i, gpu::Stream s) {
                       const gpu::Matrix z{.data = logits.as<float>() + i * most * widest,
                                           .dtype = rose::kernels::DType::f32,
                                           .rows = rows,
                                           .cols = widest};
                       sample(z, on_device, chosen, nullptr, s);
                     }});
  };
  for (const std::int64_t rows : {std::int64_t{64}, std::int64_t{1}, most}) {
    add("top-k 50, top-p 0.95", {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .seed = 1},
        rows);
    add("top-p 0.95", {.temperature = 0.8f, .top_p = 0.95f, .seed = 1}, rows);
    add("temperature 1", {.temperature = 1.0f, .seed = 1}, rows);
    add("greedy", {}, rows);
  }
  return memory_bench(argc, argv, cases);
}
