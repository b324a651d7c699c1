// Choices on the GPU beside the CPU's.
#pragma once

#include <algorithm>
#include <cmath>

#include "rose/kernels/gpu/sampling.h"
#include "twin_elementwise.h"

namespace rose::kernels::gpu {

inline Input tied_logits(Fuzz& fuzz, std::int64_t rows, std::int64_t cols) {
  std::vector<float> values = random_values(rows * cols, fuzz.below(1000), 3);
  const float step = fuzz.one_of({0.0f, 0.0f, 0.5f, 4.0f});  // many equal logits, or few
  for (float& z : values) z = step > 0 ? step * std::round(z / step) : z;
  return fuzz.input(std::move(values), rows, cols, DType::f32);
}

inline void twin_sample(Fuzz& fuzz) {
  const std::int64_t rows = fuzz.size(12), cols = fuzz.some(40'000);
  const Input z = tied_logits(fuzz, rows, cols);
  std::vector<SamplingParams> params;
  for (std::int64_t r = 0; r < rows; ++r) {
    params.push_back({.temperature = fuzz.one_of({0.0f, 0.3f, 1.0f, 1.0f, 2.0f}),
                      .top_k = fuzz.one_of({0, 1, 5, 50, 3000}),
                      .top_p = fuzz.one_of({1.0f, 1.0f, 0.9f, 0.5f, 0.01f}),
                      .min_p = fuzz.one_of({0.0f, 0.0f, 0.05f}),
                      .seed = fuzz.below(1000),
                      .position = fuzz.below(1000)});
  }
  const Buffer p = Buffer::of(std::span<const SamplingParams>(params));
  const auto bytes = static_cast<std::size_t>(rows) * 4;
  Buffer tokens(bytes), logprobs(bytes);
  sample(z.view(), p.as<SamplingParams>(), tokens.as<std::int32_t>(), logprobs.as<float>(), {});
  synchronize({});
  const auto chosen = tokens.values<std::int32_t>();
  const auto scores = logprobs.values<float>();
  std::vector<std::pair<float, std::int32_t>> scratch;
  static int drawn = 0, other = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const std::span row(z.values().data() + r * cols, static_cast<std::size_t>(cols));
    const Choice twin = kernels::sample(row, params[at], scratch);
    ++drawn;
    if (chosen[at] == twin.token) {
      EXPECT_NEAR(scores[at], twin.logprob, 2e-4) << fuzz.drawn();
    } else {
      ++other;
      EXPECT_NE(params[at].temperature, 0.0f) << fuzz.drawn();
      EXPECT_GE(chosen[at], 0) << fuzz.drawn();
    }
  }
  EXPECT_LE(other, 1 + drawn / 50)
      << "choices that are not the CPU's, of " << drawn << "; " << fuzz.drawn();
}

inline void twin_top_logprobs(Fuzz& fuzz) {
  const std::int64_t rows = fuzz.size(12), cols = fuzz.some(40'000);
  const int count = 1 + static_cast<int>(fuzz.below(most_top_logprobs));
  const Input z = tied_logits(fuzz, rows, cols);
  const std::vector<float> lse = random_values(rows, 3);
  const Buffer sums = Buffer::of(std::span<const float>(lse));
  const auto bytes = static_cast<std::size_t>(rows * count) * 4;
  Buffer ids(bytes), scores(bytes);
  top_logprobs(z.view(), sums.as<float>(), count, ids.as<std::int32_t>(), scores.as<float>(), {});
  const auto many = static_cast<std::size_t>(count), width = static_cast<std::size_t>(cols);
  std::vector<std::int32_t> expected_ids(static_cast<std::size_t>(rows) * many);
  std::vector<float> expected(expected_ids.size());
  for (std::size_t r = 0; r < lse.size(); ++r) {
    kernels::top_logprobs(std::span(z.values()).subspan(r * width, width), lse[r],
                          std::span(expected_ids).subspan(r * many, many),
                          std::span(expected).subspan(r * many, many));
  }
  synchronize({});
  EXPECT_EQ(ids.values<std::int32_t>(), expected_ids) << fuzz.drawn();
  expect_same_bits(scores.values<float>(), expected, "top logprobs of (" + fuzz.drawn() + ")");
}

inline void twin_adjust_logits(Fuzz& fuzz) {
  const std::int64_t cols = fuzz.some(3000), words = (cols + 31) / 32;
  const Input z = fuzz.input(1, cols, DType::f32);
  std::vector<std::int32_t> ids, counts;
  std::vector<float> biases;
  std::vector<std::pair<std::int32_t, float>> bias;
  std::vector<std::pair<std::int32_t, std::int32_t>> context;
  for (std::int32_t id = -2; id < cols + 2; id += 1 + static_cast<std::int32_t>(fuzz.below(9))) {
    ids.push_back(id);
    counts.push_back(static_cast<std::int32_t>(fuzz.below(4)));
    biases.push_back(4 * fuzz.uniform() - 2);
    bias.emplace_back(id, biases.back());
    context.emplace_back(id, counts.back());
  }
  std::vector<std::uint32_t> mask;
  for (std::int64_t w = 0; w < words; ++w) mask.push_back(fuzz.below(0xffffffffu));
  const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())};
  const std::vector<float> penalties{1.3f, 0.4f, 0.7f};
  const Integers on_ids(ids), on_counts(counts), on_offsets(offsets);
  const Buffer values = Buffer::of(std::span<const float>(biases)),
               bits = Buffer::of(std::span<const std::uint32_t>(mask)),
               p = Buffer::of(std::span<const float>(penalties));
  adjust_logits(z.view(),
                {.bias_offsets = on_offsets.data(),
                 .bias_ids = on_ids.data(),
                 .bias_values = values.as<float>(),
                 .mask = bits.as<std::uint32_t>(),
                 .mask_words = words,
                 .context_offsets = on_offsets.data(),
                 .context_ids = on_ids.data(),
                 .context_counts = on_counts.data(),
                 .repetition = p.as<float>(),
                 .frequency = p.as<float>() + 1,
                 .presence = p.as<float>() + 2},
                {});
  std::vector<float> twin = z.values();
  kernels::adjust_logits(twin, {.bias = bias,
                                .mask = mask,
                                .context = context,
                                .repetition = penalties[0],
                                .frequency = penalties[1],
                                .presence = penalties[2]});
  expect_same_bits(z.current(), twin, "adjusted logits of (" + fuzz.drawn() + ")");
}

}  // namespace rose::kernels::gpu
