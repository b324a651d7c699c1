// Tests of the chapter "The engine, measured".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "labs/evidence/values.h"
#include "labs/inference/qwen3.h"
#include "labs/inference/requests.h"
#include "rose/infer/cost.h"

namespace rose::infer {
namespace {

// The totals are those of the original.
TEST(RequestMix, IsTheOneThatOthersMeasured) {
  std::int64_t prompts = 0, answers = 0, longest = 0;
  for (const labs::MixedRequest& request : labs::nano_vllm_requests()) {
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    prompts += prompt;
    answers += request.answer;
    longest = std::max(longest, prompt + request.answer);
  }
  labs::write_value("request-mix", "prompt-tokens", static_cast<double>(prompts));
  labs::write_value("request-mix", "answer-tokens", static_cast<double>(answers));
  EXPECT_EQ(prompts, 142'827);
  EXPECT_EQ(answers, 133'966);
  EXPECT_EQ(longest, 2011);
}

// Bound the run, step by step.
TEST(RequestMix, Bound) {
  const model::Config config = labs::qwen3_600m();
  constexpr double bandwidth = 4.3e12, flops = 780e12, tera = 1e12;
  const auto requests = labs::nano_vllm_requests();
  Work prompts;
  for (const auto& r : requests) {
    prompts.add(0, static_cast<std::int64_t>(r.prompt.size()), true);
  }
  const kernels::gpu::Cost read = step_cost(config, prompts);
  double seconds = read.flops / flops, kv = 0, weights = 0;
  for (std::int32_t step = 1; step < 1024; ++step) {
    Work work;
    for (const auto& r : requests) {
      if (step < r.answer) work.add(static_cast<std::int64_t>(r.prompt.size()) + step - 1, 1, true);
    }
    if (work.tokens == 0) break;
    const kernels::gpu::Cost cost = step_cost(config, work);
    const double own = 2.0 * 28 * 8 * 128 * 2 * static_cast<double>(work.cached);
    seconds += cost.bytes / bandwidth;
    kv += own, weights += cost.bytes - own;
  }
  const double rate = 133'966 / seconds;
  labs::write_value("request-mix-bound", "seconds", std::round(seconds * 10) / 10);
  labs::write_value("request-mix-bound", "rate", std::round(rate / 1000) * 1000);
  labs::write_value("request-mix-bound", "kv-terabytes", std::round(kv / tera * 10) / 10);
  labs::write_value("request-mix-bound", "weight-terabytes", std::round(weights / tera * 10) / 10);
  EXPECT_NEAR(rate, 36'500, 1500);
}

}  // namespace
}  // namespace rose::infer
