// Read a prompt of 8,192 tokens.

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <string_view>

#include "benchmarks/harness/bench.h"
#include "labs/inference/pass.h"
#include "labs/inference/qwen3.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/kv_cache.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/sampling.h"
#include "rose/model/files/budget.h"

namespace {

using namespace rose;
using kernels::DType;
using kernels::gpu::Buffer;
using kernels::gpu::Matrix;
using kernels::gpu::Stream;

class Step {
 public:
  Step(labs::GpuPass& pass, std::int32_t count, std::int32_t tokens, std::int32_t context)
      : pass_(pass), cache_(pass.weights().config(), count, context) {
    const model::Config& config = pass.weights().config();
    cache_.randomise();
    view_ = cache_.view();
    std::vector<std::int32_t> ids, positions, offsets{0}, last;
    std::vector<kernels::KvPlace> places;
    core::Rng rng(3);
    for (std::int32_t s = 0; s < count; ++s) {
      for (std::int32_t t = 0; t < tokens; ++t) {
        ids.push_back(static_cast<std::int32_t>(rng.below(151'936)));
        positions.push_back(context - tokens + t);
        places.push_back({s, positions.back()});
      }
      offsets.push_back(static_cast<std::int32_t>(ids.size()));
      last.push_back(offsets.back() - 1);
    }
    plan_ = kernels::gpu::plan_attention(
        model::attention_shape(config), offsets,
        std::vector<std::int32_t>(static_cast<std::size_t>(count), context));
    attention_ = Buffer(plan_.workspace_bytes());
    kernels::gpu::upload(plan_, attention_.workspace(), {});
    ids_ = Buffer::of(std::span<const std::int32_t>(ids));
    positions_ = Buffer::of(std::span<const std::int32_t>(positions));
    places_ = Buffer::of(std::span<const kernels::KvPlace>(places));
    last_ = Buffer::of(std::span<const std::int32_t>(last));
    const std::vector<kernels::SamplingParams> greedy(static_cast<std::size_t>(count));
    params_ = Buffer::of(std::span<const kernels::SamplingParams>(greedy));
    hidden_ = Buffer(static_cast<std::size_t>(count * config.hidden) * 2);
    logits_ = Buffer(static_cast<std::size_t>(count * config.vocab_size) * 4);
    chosen_ = Buffer(static_cast<std::size_t>(count) * 4);
    batch_ = {.tokens = static_cast<std::int64_t>(ids.size()),
              .ids = ids_.as<std::int32_t>(),
              .positions = positions_.as<std::int32_t>(),
              .places = places_.as<kernels::KvPlace>(),
              .logit_tokens = last_.as<std::int32_t>(),
              .plan = &plan_,
              .attention = attention_.workspace(),
              .kv = &view_};
    pass.workspace().plan(batch_.tokens);
    pass.workspace().plan_head(count);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  void enqueue(Stream stream) const {
    const model::Config& config = pass_.weights().config();
    const auto rows = static_cast<std::int64_t>(chosen_.bytes() / 4);
    const Matrix hidden{hidden_.data(), DType::bf16, rows, config.hidden},
        out{logits_.data(), DType::f32, rows, config.vocab_size};
    forward(pass_.weights(), batch_, pass_.workspace(), hidden, stream);
    logits(pass_.weights(), hidden, pass_.workspace(), out, stream);
    kernels::gpu::sample(out, params_.as<kernels::SamplingParams>(), chosen_.as<std::int32_t>(),
                         nullptr, stream);
  }
  double microseconds(int samples) const {
    return kernels::gpu::time_launches([&](int, Stream stream) { enqueue(stream); },
                                       {.copies = 1, .rounds = 1, .samples = samples, .warmup = 1})
        .median_us;
  }
  const model::GpuBatch& batch() const { return batch_; }
  labs::GpuPass& pass() const { return pass_; }
  const Matrix out() const {
    const auto rows = static_cast<std::int64_t>(chosen_.bytes() / 4);
    return {logits_.data(), DType::f32, rows, pass_.weights().config().vocab_size};
  }
  void choose(Stream stream) const {
    kernels::gpu::sample(out(), params_.as<kernels::SamplingParams>(), chosen_.as<std::int32_t>(),
                         nullptr, stream);
  }
  Matrix hidden() const {
    const auto rows = static_cast<std::int64_t>(chosen_.bytes() / 4);
    return {hidden_.data(), DType::bf16, rows, pass_.weights().config().hidden};
  }

 private:
  labs::GpuPass& pass_;
  labs::DeviceCache cache_;
  kernels::KvView view_;
  kernels::gpu::AttentionPlan plan_;
  Buffer attention_, ids_, positions_, places_, last_, params_, hidden_, logits_, chosen_;
  model::GpuBatch batch_;
};

/// The relative distance of the GPU's logits to the CPU's, for a prompt of 24 tokens.
double check(const model::WeightSet& weights, labs::GpuPass& pass) {
  std::vector<std::int32_t> ids(24), positions(24);
  core::Rng rng(2);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(151'936));
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> offsets{0, 24}, last{23};
  const model::Batch batch{ids, positions, offsets};
  const labs::DeviceCache cache(weights.config(), 1, 24);
  const std::vector<float> ours = pass.run(batch, &cache, last);
  model::Workspace ws(weights.config());
  const auto c = static_cast<std::size_t>(weights.config().hidden);
  std::vector<float> hidden(24 * c), exact(ours.size());
  model::forward(weights, batch, nullptr, nullptr, ws, hidden);
  model::logits(weights, std::span(hidden).last(c), 1, ws, exact);
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    difference += (double{ours[i]} - exact[i]) * (double{ours[i]} - exact[i]);
    norm += double{exact[i]} * exact[i];
  }
  return std::sqrt(difference / norm);
}

void print_parts(const Step& step) {
  labs::GpuPass& pass = step.pass();
  const model::GpuWeights& w = pass.weights();
  const model::Config& c = w.config();
  model::GpuWorkspace& ws = pass.workspace();
  const model::GpuBatch& b = step.batch();
  const auto m = [&](std::byte* data, std::int64_t cols) {
    return Matrix{data, DType::bf16, b.tokens, cols};
  };
  const std::int64_t wide = (c.heads + 2 * c.kv_heads) * c.head_dim, qd = c.heads * c.head_dim;
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    Matrix of = m(ws.qkv + first * c.head_dim * 2, heads * c.head_dim);
    of.stride = wide;
    return of;
  };
  const auto time = [&](const char* name, const auto& each) {
    const double us = kernels::gpu::time_launches(
                          [&](int, Stream s) {
                            for (int i = 0; i < c.layers; ++i) {
                              each(i, w.layers()[static_cast<std::size_t>(i)], s);
                            }
                          },
                          {.copies = 1, .rounds = 1, .samples = 5, .warmup = 1})
                          .median_us;
    std::fprintf(stderr, "    %-12s %8.2f us a layer\n", name, us / static_cast<double>(c.layers));
  };
  const auto multiply = [&](const kernels::gpu::LinearShape& shape, const Matrix& from,
                            const Matrix& weight, const Matrix& to, Stream s) {
    kernels::gpu::linear(ws.plans(shape), {.x = from, .w = weight, .y = to}, ws.linear, s);
  };
  const std::int64_t t = b.tokens;
  time("add, norm", [&](int, const model::GpuLayer& l, Stream s) {
    kernels::gpu::add_rmsnorm(m(ws.x, c.hidden), m(ws.y, c.hidden), l.attn_norm, c.norm_eps,
                              m(ws.x, c.hidden), m(ws.normed, c.hidden), nullptr, s);
  });
  const auto linear = [&](const char* name, kernels::gpu::LinearShape shape, std::byte* from,
                          const Matrix model::GpuLayer::*weight, std::byte* to) {
    std::fprintf(stderr, "    %s: %s\n", name, ws.plans(shape).describe().c_str());
    time(name, [&](int, const model::GpuLayer& l, Stream s) {
      multiply(shape, m(from, shape.k), l.*weight, m(to, shape.n), s);
    });
  };
  linear("q, k, v", {.m = t, .n = wide, .k = c.hidden}, ws.normed, &model::GpuLayer::qkv, ws.qkv);
  time("append", [&](int i, const model::GpuLayer& l, Stream s) {
    kernels::gpu::kv_append(part(0, c.heads), part(c.heads, c.kv_heads),
                            part(c.heads + c.kv_heads, c.kv_heads), *b.kv, i, b.places,
                            {ws.cos, ws.sin}, s, nullptr,
                            {l.q_norm.data, l.k_norm.data, DType::f32, c.norm_eps});
  });
  time("attention", [&](int i, const model::GpuLayer&, Stream s) {
    kernels::gpu::attention(*b.plan, part(0, c.heads), *b.kv, i, m(ws.attended, qd), nullptr,
                            b.attention, s);
  });
  linear("out", {.m = t, .n = c.hidden, .k = qd}, ws.attended, &model::GpuLayer::o, ws.y);
  linear("gate, up",
         {.m = t, .n = c.ffn, .k = c.hidden, .activation = kernels::gpu::Activation::swiglu},
         ws.normed, &model::GpuLayer::up, ws.activated);
  linear("down", {.m = t, .n = c.hidden, .k = c.ffn}, ws.activated, &model::GpuLayer::down, ws.y);
  const auto once = [&](const char* name, const auto& work) {
    const double us =
        kernels::gpu::time_launches([&](int, Stream s) { work(s); },
                                    {.copies = 1, .rounds = 1, .samples = 5, .warmup = 1})
            .median_us;
    std::fprintf(stderr, "    %-12s %8.2f us\n", name, us);
  };
  once("head", [&](Stream s) { logits(w, step.hidden(), ws, step.out(), s); });
  once("sample", [&](Stream s) { step.choose(s); });
}
void print_table(labs::GpuPass& pass) {
  struct Case {
    std::int32_t count, tokens, context;
  };
  for (const Case& c : {Case{1, 1, 128},
                        {1, 1, 1024},
                        {8, 1, 512},
                        {64, 1, 512},
                        {256, 1, 512},
                        {256, 1, 1024},
                        {1, 512, 512},
                        {1, 8192, 8192}}) {
    const Step step(pass, c.count, c.tokens, c.context);
    const double us = step.microseconds(7);
    std::fprintf(stderr, "%d sequences, %d tokens each, context %d: %.1f us, %.0f tokens/s\n",
                 c.count, c.tokens, c.context, us, c.count * c.tokens * 1e6 / us);
    if (c.count != 8 && c.count != 64 && c.tokens != 512) print_parts(step);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (labs::no_gpu("engine-prefill-8k")) return 1;
  const model::Config config = labs::qwen3_600m();
  const auto weights = labs::random_bf16_weights(config);
  constexpr std::int64_t prompt = 8192;
  labs::GpuPass pass(*weights, prompt, 256);
  const double error = check(*weights, pass);
  bool table = false;
  for (int i = 1; i < argc; ++i) table = table || std::string_view(argv[i]) == "--table";
  if (table) print_table(pass);
  const Step step(pass, 1, prompt, prompt);
  constexpr double bound = 0.05;
  return bench::run(argc, argv,
                    {.metric = "rate",
                     .unit = "tokens/s",
                     .better = "higher",
                     .extra = {{"correct",
                                {{"against", "the CPU's fp32 pass, relative distance of logits"},
                                 {"error", error},
                                 {"bound", bound}}},
                               {"config", labs::qwen3_record({{"prompt", prompt}, {"pages", 16}})},
                               {"seed", 1}},
                     .samples = 9,
                     .warmup = 2},
                    [&] { return static_cast<double>(prompt) * 1e6 / step.microseconds(1); });
}
