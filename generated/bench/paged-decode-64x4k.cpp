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

gpu::Buffer random(std::int64_t count, std::uint64_t seed) {
  rose::core::Rng rng(seed);
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
  const std::size_t drawn = std::min<std::size_t>(bits.size(), (1 << 20) + 7);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = i < drawn ? rose::kernels::to_bf16(rng.normal()).bits : bits[i - drawn];
  }
  return gpu::Buffer::of(std::span<const std::uint16_t>(bits));
}

/// Microseconds for one step with this many query heads, and whether all ways of computing it agreed bit for bit.
double decode(std::int64_t heads, const gpu::Buffer& k, const gpu::Buffer& v, bool& agreed,
              bool shuffled = true, gpu::AttentionOptions how = {}, bool merge = true) {
  const gpu::Buffer q = random(sequences * heads * head_dim, 3);
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages)), offsets(sequences + 1);
  std::iota(table.begin(), table.end(), 0);
  std::iota(offsets.begin(), offsets.end(), 0);
  rose::core::Rng rng(4);
  for (std::size_t i = table.size(); shuffled && i > 1; --i) {
    std::swap(table[i - 1], table[rng.below(static_cast<std::uint32_t>(i))]);
  }
  const gpu::Buffer table_on_device = gpu::Buffer::of(std::span<const std::int32_t>(table));
  const rose::kernels::KvView view{.k = k.data(),
                                   .v = v.data(),
                                   .dtype = DType::bf16,
                                   .layers = 1,
                                   .kv_heads = kv_heads,
                                   .head_dim = head_dim,
                                   .page_size = page,
                                   .pages = pages,
                                   .page_table = table_on_device.as<std::int32_t>(),
                                   .table_stride = length / page};
  const std::vector<std::int32_t> lengths(sequences, static_cast<std::int32_t>(length));
  const auto bytes = static_cast<std::size_t>(sequences * heads * head_dim) * 2;
  const auto run = [&](const gpu::AttentionOptions& options, const auto& use) {
    gpu::AttentionPlan plan = gpu::plan_attention(
        {heads, kv_heads, head_dim, 1.0f / std::sqrt(128.0f)}, offsets, lengths, options);
    if (!merge) plan.merges = 0;
    const gpu::Buffer workspace(plan.workspace_bytes());
    gpu::Buffer out(bytes);
    out.poison();
    gpu::upload(plan, workspace.workspace(), {});
    gpu::synchronize({});
    const gpu::Matrix queries{q.data(), DType::bf16, sequences, heads * head_dim};
    const gpu::Matrix result{out.data(), DType::bf16, sequences, heads * head_dim};
    const gpu::Launch launch = [&](int, gpu::Stream stream) {
      gpu::attention(plan, queries, view, 0, result, nullptr, workspace.workspace(), stream);
    };
    return use(launch, out);
  };
  const auto once = [](const gpu::Launch& launch, const gpu::Buffer& out) {
    launch(0, {});
    gpu::synchronize({});
    return out.values<std::uint16_t>();
  };
  if (merge) agreed = agreed && run(how, once) == run({.path = gpu::AttentionPath::rows}, once);
  return run(how, [](const gpu::Launch& launch, const gpu::Buffer&) {
    return gpu::time_launches(launch, {.rounds = 8, .samples = 9, .warmup = 2}).median_us;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const gpu::Buffer k = random(cache_elements, 1), v = random(cache_elements, 2);
  const double giga = 4e-3 * cache_elements;  // bytes of keys and values per microsecond to GB/s
  bool agreed = true;
  boost::json::object groups;
  for (const std::int64_t group : {1, 2, 4, 8, 16}) {
    const double rate = giga / decode(group * kv_heads, k, v, agreed);
    std::fprintf(stderr, "paged decode, %2d query heads to a key head: %.0f GB/s\n",
                 static_cast<int>(group), rate);
    groups["group_" + std::to_string(group)] = rate;
  }
  groups["in_order"] = giga / decode(4 * kv_heads, k, v, agreed, false);
  std::fprintf(stderr, "pages in order: %.0f GB/s\n", groups["in_order"].as_double());
  for (const int variant : {-1, 0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 16, 17, 21, 32, 33, 37, 64, 65}) {
    gpu::AttentionOptions how;
    how.warpgroup = variant >= 0;
    how.variant = std::max(0, variant);
    bool same = true;
    const double whole = giga / decode(4 * kv_heads, k, v, same, true, how);
    const double again = giga / decode(4 * kv_heads, k, v, same, true, how);
    std::fprintf(stderr, "variant %d: %.0f, %.0f GB/s, bits %s\n", variant, whole, again,
                 same ? "agree" : "DIFFER");
  }
  const double read = gpu::measure_bandwidth().read / 1e9;
  std::fprintf(stderr, "read bandwidth %.0f GB/s, ways of computing %s\n", read,
               agreed ? "agree" : "DIFFER");
  return rose::bench::run(
      argc, argv,
      {.metric = "rate",
       .unit = "GB/s",
       .better = "higher",
       .extra = {{"correct",
                  {{"against", "the rows kernel, bit for bit"},
                   {"error", agreed ? 0 : 1},
                   {"bound", 0}}},
                 {"seed", 1},
                 {"limit", {{"name", "read bandwidth"}, {"value", read}}},
                 {"config",
                  {{"shape",
                    "64 sequences of 4,096 keys, 8 key heads of 128, 4 query heads each, "
                    "bf16, pages of 16 in random order"},
                   {"bytes", "keys and values once"},
                   {"by_group", groups},
                   {"device", gpu::device_info().name},
                   {"sm_mhz", gpu::read_clocks().sm_mhz}}}}},
      [&] { return giga / decode(4 * kv_heads, k, v, agreed); });
}
