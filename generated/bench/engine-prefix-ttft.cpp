// Wait for first tokens, with the cache and without.

#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "labs/inference/requests.h"
#include "rose/core/files.h"

namespace {

using namespace rose;

constexpr std::size_t shared = 4096, own = 128, requests = 30;

double first_token(infer::Engine& engine, infer::Request request) {
  std::mutex mutex;
  std::condition_variable heard;
  double seconds = -1;
  bool over = false;
  const auto start = std::chrono::steady_clock::now();
  request.sampling = {.temperature = 0.0f, .max_tokens = 1};
  request.on_event = [&](const infer::Event& e) {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now() - start;
    const std::scoped_lock lock(mutex);
    if (!e.tokens.empty()) seconds = now.count();
    over = over || e.finish.has_value();
    heard.notify_one();
  };
  engine.submit(std::move(request));
  std::unique_lock lock(mutex);
  heard.wait(lock, [&] { return over; });
  return seconds * 1e3;
}

/// Milliseconds, the median over those that share.
double median_wait(infer::Engine& engine, bool warm, std::uint64_t seed) {
  core::Rng rng(seed);
  const auto draw = [&] { return static_cast<std::int32_t>(rng.below(151'936)); };
  std::vector<std::int32_t> prefix(shared);
  std::ranges::generate(prefix, draw);
  engine.control().forget_cache();
  const infer::Statistics before = engine.control().statistics();
  std::vector<double> sharers;
  for (std::size_t i = 0; i < requests; ++i) {
    const bool shares = i % 10 != 9;
    infer::Request r;
    r.prompt = prefix;
    if (!shares) std::ranges::generate(r.prompt, draw);
    for (std::size_t t = 0; t < own; ++t) r.prompt.push_back(draw());
    const double wait = first_token(engine, std::move(r));
    if (shares && (i > 0 || !warm)) sharers.push_back(wait);
  }
  const infer::Statistics s = engine.control().statistics();
  const auto each = [&](double after, double first) {
    return 1e3 * (after - first) / static_cast<double>(s.steps - before.steps);
  };
  std::fprintf(stderr, "%s: a step takes %.3f ms, %.3f of them in the runner\n",
               warm ? "warm" : "cold", each(s.step_seconds, before.step_seconds),
               each(s.runner_seconds, before.runner_seconds));
  return bench::median(std::move(sharers));
}

}  // namespace

int main(int argc, char** argv) {
  if (labs::no_gpu("engine-prefix-ttft")) return 1;
  const infer::GpuRunnerOptions options{
      .tokens = 8192, .sequences = 16, .positions = 8192, .pages = 4000};
  infer::Engine cold(labs::qwen3_runner(options), {.prefix_caching = false}),
      warm(labs::qwen3_runner(options));
  cold.start(), warm.start();
  std::uint64_t seed = 1;
  double without = 0, with = 0;
  return bench::run(
      argc, argv,
      {.metric = "ratio",
       .unit = "ratio",
       .better = "higher",
       .extra = {{"config",
                  labs::qwen3_record({{"shared", shared}, {"own", own}, {"requests", requests}})},
                 {"seed", 1}},
       .samples = 5,
       .warmup = 1},
      [&] {
        without = median_wait(cold, false, ++seed);
        const char* const profile = std::getenv("ROSE_PROFILE");
        if (profile != nullptr) warm.control().start_profile();
        with = median_wait(warm, true, seed);
        if (profile != nullptr) core::write_file_atomic(profile, warm.control().stop_profile());
        std::fprintf(stderr, "first token after %.3f ms without, %.3f ms with\n", without, with);
        return without / with;
      });
}
