// Decode 64 sequences of 4,096 tokens through pages of 16.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "benchmarks/harness/bench.h"
#include "rose/core/rng.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/instruments.h"

namespace {

namespace gpu = rose::kernels::gpu;
using rose::kernels::DType;

constexpr std::int64_t sequences = 64, length = 4096, kv_heads = 8, head_dim = 128, page = 16;
constexpr std::int64_t pages = sequences * length / page;
constexpr std::int64_t cache_elements = pages * kv_heads * page * head_dim;

// Random numbers on the device.
gpu::Buffer random(std::int64_t count, std::uint64_t seed) {
  rose::core::Rng rng(seed);
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
  const std::size_t drawn = std::min<std::size_t>(bits.size(), (1 << 20) + 7);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = i < drawn ? rose::kernels::to_bf16(rng.normal()).bits : bits[i - drawn];
  }
  return gpu::Buffer::of(std::span<const std::uint16_t>(bits));
}

struct Cache {
  gpu::Buffer k = random(cache_elements, 1), v = random(cache_elements, 2), table;
  // A page table in random order, or in order.
  explicit Cache(bool shuffled) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    rose::core::Rng rng(4);
    for (std::size_t i = order.size(); shuffled && i > 1; --i) {
      std::swap(order[i - 1], order[rng.below(static_cast<std::uint32_t>(i))]);
    }
    table = gpu::Buffer::of(std::span<const std::int32_t>(order));
  }
  rose::kernels::KvView view() const {
    return {.k = k.data(),
            .v = v.data(),
            .dtype = DType::bf16,
            .layers = 1,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .page_size = page,
            .pages = pages,
            .page_table = table.as<std::int32_t>(),
            .table_stride = length / page};
  }
};

// One step with this many query heads: its bits, and its microseconds.
struct Step {
  gpu::Buffer q, out, workspace;
  gpu::AttentionPlan plan;
  const Cache& cache;
  std::int64_t heads;

  Step(const Cache& c, std::int64_t h, const gpu::AttentionOptions& options = {})
      : q(random(sequences * h * head_dim, 3)), out(q.bytes()), cache(c), heads(h) {
    std::vector<std::int32_t> offsets(sequences + 1);
    std::iota(offsets.begin(), offsets.end(), 0);
    const std::vector<std::int32_t> lengths(sequences, static_cast<std::int32_t>(length));
    plan = gpu::plan_attention({heads, kv_heads, head_dim, 1.0f / std::sqrt(128.0f)}, offsets,
                               lengths, options);
    workspace = gpu::Buffer(plan.workspace_bytes());
    out.poison();
    gpu::upload(plan, workspace.workspace(), {});
    gpu::synchronize({});
  }
  void launch(gpu::Stream stream) const {
    gpu::attention(plan, {q.data(), DType::bf16, sequences, heads * head_dim}, cache.view(), 0,
                   {out.data(), DType::bf16, sequences, heads * head_dim}, nullptr,
                   workspace.workspace(), stream);
  }
  std::vector<std::uint16_t> bits() const {
    launch({});
    gpu::synchronize({});
    return out.values<std::uint16_t>();
  }
  double rate() const {  // GB/s of keys and values
    const gpu::Launch one = [&](int, gpu::Stream stream) { launch(stream); };
    const gpu::Timing timing = gpu::time_launches(one, {.rounds = 8, .samples = 9, .warmup = 2});
    return 4e-3 * static_cast<double>(cache_elements) / timing.median_us;
  }
};

}  // namespace

// Compare the ways of computing it, then time them.
int main(int argc, char** argv) {
  const Cache cache(true), ordered(false);
  bool agreed = true;
  boost::json::object rates;
  for (const std::int64_t group : {1, 2, 4, 8, 16}) {
    const Step step(cache, group * kv_heads);
    const Step rows(cache, group * kv_heads, {.path = gpu::AttentionPath::rows});
    agreed = agreed && step.bits() == rows.bits() && step.bits() == rows.bits();
    rates["group_" + std::to_string(group)] = step.rate();
  }
  const Step step(cache, 4 * kv_heads), portable(cache, 4 * kv_heads, {.warpgroup = false});
  rates["in_order"] = Step(ordered, 4 * kv_heads).rate();
  rates["portable"] = portable.rate();
  agreed = agreed && step.bits() == portable.bits();
  const double read = gpu::measure_bandwidth().read / 1e9;
  std::fprintf(stderr, "%s; read bandwidth %.0f GB/s, ways of computing %s\n",
               boost::json::serialize(rates).c_str(), read, agreed ? "agree" : "DIFFER");
  return rose::bench::run(
      argc, argv,
      {.metric = "rate",
       .unit = "GB/s",
       .better = "higher",
       .extra = {{"correct",
                  {{"against", "the rows kernel and the portable one, bit for bit"},
                   {"error", agreed ? 0 : 1},
                   {"bound", 0}}},
                 {"seed", 1},
                 {"limit", {{"name", "read bandwidth"}, {"value", read}}},
                 {"config",
                  {{"shape",
                    "64 sequences of 4,096 keys, 8 key heads of 128, 4 query heads each, "
                    "bf16, pages of 16 in random order"},
                   {"bytes", "keys and values once"},
                   {"by_group", rates},
                   {"device", gpu::device_info().name},
                   {"sm_mhz", gpu::read_clocks().sm_mhz}}}}},
      [&] { return step.rate(); });
}
