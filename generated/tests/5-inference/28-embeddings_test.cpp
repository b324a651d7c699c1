// Tests of the chapter "Embeddings".

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

#include "rose/core/error.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/engine.h"
#include "rose/model/forward.h"

namespace rose::infer {
namespace {

// A vector has the same bits however its text was read.
std::shared_ptr<model::WeightSet> embedder() {
  model::Config c;
  c.vocab_size = 61, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32;
  c.ffn = 48, c.max_positions = 200;
  auto weights = model::random_weights(c, 3);
  for (const model::Parameter& p : weights->parameters())
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 8.0f : 1.0f;
  return weights;
}

std::vector<std::int32_t> passage(std::int32_t which) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 40 + which; ++i) ids.push_back((i < 20 ? 3 * i : which * i) % 61);
  return ids;
}

std::vector<float> embedded(const model::WeightSet& weights, std::span<const std::int32_t> ids,
                            Pooling pooling) {
  const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())};
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const auto width = static_cast<std::size_t>(weights.config().hidden);
  std::vector<float> hidden(ids.size() * width);
  model::Workspace ws(weights.config());
  model::forward(weights, {ids, positions, offsets}, nullptr, nullptr, ws, hidden);
  std::vector<double> sum(width, 0.0);
  const bool mean = pooling.kind == Pooling::Kind::mean;
  for (std::size_t t = mean ? 0 : ids.size() - 1; t < ids.size(); ++t)
    for (std::size_t k = 0; k < width; ++k) sum[k] += double{hidden[t * width + k]};
  double squares = 0;
  for (const double x : sum) squares += x * x;
  const double whole = mean ? 1.0 / static_cast<double>(ids.size()) : 1.0;
  const double scale = pooling.normalize ? 1.0 / std::sqrt(squares) : whole;
  std::vector<float> out;
  for (const double x : sum) out.push_back(static_cast<float>(x * scale));
  return out;
}

// In chunks, in company, from the cache, preempted.
TEST(Embeddings, HaveOneVectorEach) {
  const auto weights = embedder();
  std::int64_t preempted = 0, found = 0;
  for (const std::int64_t chunk : {0, 1, 7, 16}) {
    Engine engine(make_cpu_runner(
                      weights, {.max_tokens = 64, .max_sequences = 6, .page_size = 4, .pages = 40}),
                  {.max_chunk = chunk});
    struct Asked {
      std::vector<std::int32_t> ids;
      Pooling pooling;
      std::vector<float> vector;
      int ends = 0;
    };
    std::vector<std::unique_ptr<Asked>> all;
    for (std::int32_t i = 0; i < 24; ++i) {
      Request r;
      r.prompt = passage(i % 5);
      if (i % 3 == 2) {
        r.sampling = {.temperature = 0.0f, .max_tokens = 20};  // company
        engine.submit(std::move(r));
        continue;
      }
      const Pooling pooling{i % 3 == 0 ? Pooling::Kind::mean : Pooling::Kind::last, i % 2 == 0};
      Asked& asked = *all.emplace_back(std::make_unique<Asked>(Asked{r.prompt, pooling, {}}));
      r.pooling = pooling;
      r.on_event = [&asked, &found](const Event& e) {
        EXPECT_TRUE(e.tokens.empty());
        EXPECT_EQ(e.usage.completion, 0);
        asked.ends += e.finish == Finish::stop ? 1 : 0;
        asked.vector.assign(e.embedding.begin(), e.embedding.end());
        found += e.usage.cached;
      };
      engine.submit(std::move(r));
    }
    engine.run();
    for (const auto& asked : all) {
      EXPECT_EQ(asked->ends, 1);
      EXPECT_EQ(asked->vector, embedded(*weights, asked->ids, asked->pooling));
    }
    preempted += engine.control().statistics().preemptions;
  }
  EXPECT_GT(preempted, 0);
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace rose::infer
