// Requests for benches of the engine.

#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "labs/inference/qwen3.h"
#include "rose/infer/engine.h"
#include "rose/infer/gpu_runner.h"

namespace rose::labs {

// Draw numbers as Python does.

/// Python's random.seed(0) and randint.
class PythonRandom {
 public:
  PythonRandom() {
    std::array<std::uint32_t, size>& s = state_;
    s[0] = 19'650'218;
    for (std::uint32_t i = 1; i < size; ++i)
      s[i] = 1'812'433'253 * (s[i - 1] ^ (s[i - 1] >> 30)) + i;
    std::uint32_t i = 1;
    const auto wrap = [&] {
      if (++i >= size) s[0] = s[size - 1], i = 1;
    };
    for (std::uint32_t k = 0; k < size; ++k, wrap())
      s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1'664'525));
    for (std::uint32_t k = 1; k < size; ++k, wrap())
      s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1'566'083'941)) - i;
    s[0] = 0x80000000;
  }
  int between(int low, int high) {
    const auto n = static_cast<std::uint32_t>(high - low + 1);
    int bits = 0;
    while (n >> bits != 0) ++bits;
    std::uint32_t r = n;
    while (r >= n) r = next() >> (32 - bits);
    return low + static_cast<int>(r);
  }

 private:
  static constexpr std::uint32_t size = 624, middle = 397;
  std::uint32_t next() {
    if (at_ == size) {
      for (std::uint32_t i = 0; i < size; ++i) {
        const std::uint32_t y = (state_[i] & 0x80000000) | (state_[(i + 1) % size] & 0x7fffffff);
        state_[i] = state_[(i + middle) % size] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0df : 0);
      }
      at_ = 0;
    }
    std::uint32_t y = state_[at_++];
    y ^= y >> 11, y ^= (y << 7) & 0x9d2c5680, y ^= (y << 15) & 0xefc60000;
    return y ^ (y >> 18);
  }
  std::array<std::uint32_t, size> state_{};
  std::uint32_t at_ = size;
};

// Make nano-vllm's requests.
inline std::vector<infer::Request> nano_vllm_mix() {
  PythonRandom random;
  std::vector<infer::Request> mix(256);
  for (infer::Request& r : mix) {
    r.prompt.resize(static_cast<std::size_t>(random.between(100, 1024)));
    for (auto& id : r.prompt) id = random.between(0, 10'000);
  }
  std::int64_t total = 0;
  for (infer::Request& r : mix) {
    total += r.sampling.max_tokens = random.between(100, 1024);
    r.sampling.temperature = 0.6f;
    r.sampling.ignore_eos = true;
    r.text = false;
  }
  if (total != 133'966)
    std::fprintf(stderr, "engine-mix: not the mix: %lld tokens\n", static_cast<long long>(total));
  return mix;
}

// Answer them all from a cold cache.

/// Returns tokens per second.
inline double answer(infer::Engine& engine, const std::vector<infer::Request>& requests) {
  engine.control().forget_cache();
  std::atomic<std::int64_t> tokens{0};
  const infer::Statistics before = engine.control().statistics();
  const double seconds = bench::seconds([&] {
    for (infer::Request r : requests) {
      r.on_event = [&tokens](const infer::Event& e) {
        tokens += static_cast<std::int64_t>(e.tokens.size());
      };
      engine.submit(std::move(r));
    }
    engine.run();
  });
  const infer::Statistics s = engine.control().statistics();
  std::fprintf(
      stderr,
      "%lld tokens in %.3f s, %lld steps, %.3f s in the runner, %.3f s in steps, %lld preempted\n",
      static_cast<long long>(tokens.load()), seconds,
      static_cast<long long>(s.steps - before.steps), s.runner_seconds - before.runner_seconds,
      s.step_seconds - before.step_seconds,
      static_cast<long long>(s.preemptions - before.preemptions));
  return static_cast<double>(tokens.load()) / seconds;
}

/// A runner over random weights of Qwen3-0.6B's shape; its memory plan goes to the log.
inline std::unique_ptr<infer::Runner> qwen3_runner(const infer::GpuRunnerOptions& options) {
  auto runner = infer::make_gpu_runner(random_bf16_weights(qwen3_600m()), options);
  std::fprintf(stderr, "%s\n%s\n", std::string(runner->name()).c_str(),
               runner->memory().describe().c_str());
  return runner;
}

}  // namespace rose::labs
