// Laws 2, 3 and 7 for attention: the same rows give the same bits however they are asked for, and the bits are near the truth.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "labs/gpu/gpu_test.h"
#include "sequences.h"

namespace rose::kernels::gpu {
namespace {

using GpuAttention = GpuTest;

/// Compares rows [from, from + count) of `got`, which is the answer for `part`, with the answer for the whole sequence.
void expect_same_rows(const Heads& h, const Outcome& whole, const Outcome& got, std::int64_t at,
                      const Part& part, const std::string& what) {
  const std::int64_t width = h.heads * h.head_dim;
  std::int64_t differ = 0, first = -1;
  for (std::int64_t i = 0; i < part.count * width; ++i) {
    if (whole.out[static_cast<std::size_t>(part.first * width + i)] !=
        got.out[static_cast<std::size_t>(at * width + i)]) {
      if (differ++ == 0) first = i;
    }
  }
  EXPECT_EQ(differ, 0) << what << ": first at query " << part.first + first / width << ", head "
                       << first % width / h.head_dim << ", column " << first % h.head_dim << " of "
                       << part.tokens->length << " tokens";
  EXPECT_EQ(std::memcmp(whole.lse.data() + part.first * h.heads, got.lse.data() + at * h.heads,
                        static_cast<std::size_t>(part.count * h.heads) * sizeof(float)),
            0)
      << what << ": log-sum-exp";
}

std::string name_of(const Heads& h) {
  return std::string(info(h.dtype).name) + " heads " + std::to_string(h.heads) + "/" +
         std::to_string(h.kv_heads) + " of " + std::to_string(h.head_dim);
}

constexpr AttentionOptions kRowsMma{.path = AttentionPath::rows, .warpgroup = false};
constexpr AttentionOptions kRows{.path = AttentionPath::rows};
constexpr AttentionOptions kCrowd{.path = AttentionPath::rows, .turns = false};
constexpr AttentionOptions kSplits{.path = AttentionPath::splits};
constexpr AttentionOptions kDividedMma{
    .path = AttentionPath::rows, .warpgroup = false, .divide_below = 1 << 20};
constexpr AttentionOptions kDivided{.path = AttentionPath::rows, .divide_below = 1 << 20};

const std::vector<Heads> kHeads = {
    {4, 4, 64},
    {4, 2, 64},
    {9, 3, 64},
    {8, 2, 128},
    {7, 1, 128},
    {16, 2, 128},
    {2, 2, 128, DType::f16},
    {4, 2, 96},
    {4, 2, 256},
    {6, 2, 64, DType::f16},
    {4, 2, 64, DType::f32},
    {3, 1, 96, DType::f32},
    {7, 1, 128, DType::f32},
    {2, 2, 256, DType::f32},
};

TEST_F(GpuAttention, IsNearDoublePrecision) {
  for (const Heads& h : kHeads) {
    double worst[3] = {};
    std::uint64_t seed = 1;
    for (const std::int64_t n : {1, 2, 7, 63, 64, 65, 127, 128, 129, 300, 511, 512, 513, 1030}) {
      for (const float spread : {1.0f, 3.0f}) {
        const Tokens tokens(h, n, seed++, spread);
        const Part part{&tokens, 0, n};
        const std::int64_t step = n > 200 ? 37 : 1;
        int i = 0;
        for (const AttentionOptions& options : {kRowsMma, kRows, kSplits}) {
          const Distance d = distance(h, part, attend_packed(h, {part}, options), step);
          EXPECT_LE(d.worst, 1.0) << name_of(h) << ", " << n << " tokens, spread " << spread
                                  << ", way " << i << ": token " << d.token << " head " << d.head
                                  << " column " << d.column;
          worst[i] = std::max(worst[i], d.worst);
          ++i;
        }
      }
    }
    std::printf("%s: largest error over its bound: mma %.3f, wgmma %.3f, splits %.3f\n",
                name_of(h).c_str(), worst[0], worst[1], worst[2]);
  }
}

TEST_F(GpuAttention, RowsAndSplitsGiveTheSameBits) {
  for (const Heads& h : kHeads) {
    std::uint64_t seed = 100;
    for (const std::int64_t n : {1, 5, 64, 127, 128, 129, 511, 512, 513, 1025, 2100}) {
      const Tokens tokens(h, n, seed++, 2.0f);
      const Part part{&tokens, 0, n};
      const Outcome whole = attend_packed(h, {part}, kRowsMma);
      const std::string what = name_of(h) + ", " + std::to_string(n) + " tokens";
      expect_same_rows(h, whole, attend_packed(h, {part}, kRows), 0, part, what + ", wgmma");
      expect_same_rows(h, whole, attend_packed(h, {part}, kCrowd), 0, part, what + ", no turns");
      expect_same_rows(h, whole, attend_packed(h, {part}, kSplits), 0, part, what + ", splits");
      expect_same_rows(h, whole, attend_packed(h, {part}, {}, 8), 0, part, what + ", with gaps");
    }
  }
}

TEST_F(GpuAttention, PagesOfAnySizeGiveTheSameBits) {
  for (const Heads& h : kHeads) {
    const Tokens tokens(h, 700, 7, 2.0f);
    const Part part{&tokens, 0, 700};
    const Outcome whole = attend_packed(h, {part}, kRowsMma);
    for (const int page : {1, 7, 16, 64, 100, 256, 1000}) {
      const std::string what = name_of(h) + ", pages of " + std::to_string(page);
      for (const AttentionOptions& options : {kRowsMma, kRows, kDividedMma, kDivided, kSplits}) {
        expect_same_rows(h, whole, attend_paged(h, {part}, page, options), 0, part, what);
      }
    }
  }
}

TEST_F(GpuAttention, ChunksDecodingAndVerificationGiveTheSameBits) {
  for (const Heads& h : kHeads) {
    const std::int64_t n = 1100;
    const Tokens tokens(h, n, 11, 2.0f);
    const Outcome whole = attend_packed(h, {{&tokens, 0, n}});
    for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{0, 1, n},
                                                  {0, 128, 256, 600, n},
                                                  {0, 17, 130, 511, 1024, n},
                                                  {0, 512, 513, 1025, n}}) {
      for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
        const Part part{&tokens, cuts[c], cuts[c + 1] - cuts[c]};
        expect_same_rows(h, whole, attend_paged(h, {part}, 16), 0, part,
                         name_of(h) + ", chunk from " + std::to_string(cuts[c]));
        expect_same_rows(h, whole, attend_paged(h, {part}, 16, kDivided), 0, part,
                         name_of(h) + ", divided, chunk from " + std::to_string(cuts[c]));
      }
    }
    for (const std::int64_t at :
         {0, 1, 15, 16, 126, 127, 128, 129, 510, 511, 512, 513, 1023, 1024, 1099}) {
      const Part one{&tokens, at, 1};
      expect_same_rows(h, whole, attend_paged(h, {one}, 16), 0, one,
                       name_of(h) + ", decoding " + std::to_string(at));
      expect_same_rows(h, whole, attend_paged(h, {one}, 16, kRows), 0, one,
                       name_of(h) + ", decoding by rows " + std::to_string(at));
      expect_same_rows(h, whole, attend_paged(h, {one}, 16, kDividedMma), 0, one,
                       name_of(h) + ", decoding by divided rows " + std::to_string(at));
    }
    for (const std::int64_t at : {0, 125, 509, 1020}) {
      for (const std::int64_t drafts : {2, 4, 5, 8}) {
        const Part some{&tokens, at, drafts};
        expect_same_rows(h, whole, attend_paged(h, {some}, 64), 0, some,
                         name_of(h) + ", verifying " + std::to_string(drafts));
      }
    }
  }
}

TEST_F(GpuAttention, NeighboursDoNotShow) {
  core::Rng rng(5);
  for (const Heads& h : kHeads) {
    std::vector<Tokens> sequences;
    for (const std::int64_t n : {0, 1, 3, 129, 0, 640, 31, 513, 257}) {
      sequences.emplace_back(h, n, 1000 + static_cast<std::uint64_t>(n), 2.0f);
    }
    std::vector<Part> packed, mixed;
    for (const Tokens& t : sequences) {
      packed.push_back({&t, 0, t.length});
      const std::int64_t first =
          t.length == 0 ? 0 : rng.below(static_cast<std::uint32_t>(t.length));
      mixed.push_back(
          {&t, first,
           rng.below(3) == 0 ? t.length - first : std::min<std::int64_t>(1, t.length - first)});
    }
    const Outcome all = attend_packed(h, packed), cached = attend_paged(h, mixed, 16);
    std::int64_t at = 0, cached_at = 0;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      if (sequences[s].length > 0) {
        const Outcome alone = attend_packed(h, {packed[s]}, kRowsMma);
        const std::string what = name_of(h) + ", sequence " + std::to_string(s);
        expect_same_rows(h, alone, all, at, packed[s], what + " packed");
        expect_same_rows(h, alone, cached, cached_at, mixed[s], what + " cached");
      }
      at += packed[s].count;
      cached_at += mixed[s].count;
    }
  }
}

TEST_F(GpuAttention, WideExponentsGiveTheSameBitsToo) {
  const Heads h{4, 2, 128};
  Tokens tokens(h, 600, 3, 1.0f);
  core::Rng rng(17);
  for (Bits* bits : {&tokens.k, &tokens.v}) {
    for (auto& b : *bits) {
      b = bits_of(std::ldexp(value_of(b, h.dtype), static_cast<int>(rng.below(24)) - 20), h.dtype);
    }
  }
  const Part part{&tokens, 0, 600};
  const Outcome whole = attend_packed(h, {part}, kRowsMma);
  expect_same_rows(h, whole, attend_packed(h, {part}, kRows), 0, part, "wgmma");
  expect_same_rows(h, whole, attend_packed(h, {part}, kSplits), 0, part, "splits");
  expect_same_rows(h, whole, attend_paged(h, {part}, 16, kSplits), 0, part, "pages");
}

TEST_F(GpuAttention, QueriesBeforeTheFirstKeySeeNothing) {
  // Five queries, two keys: the last query sees both, the one before it one, the first three none.
  const Heads h{2, 1, 64};
  const Tokens tokens(h, 5, 1);
  for (const AttentionOptions& options : {kRowsMma, kRows, kDividedMma, kDivided, kSplits}) {
    const AttentionPlan plan = plan_attention(h.shape(), std::vector<std::int32_t>{0, 5},
                                              std::vector<std::int32_t>{2}, options);
    const Buffer q = to_device(tokens.q, h.dtype);
    const Buffer k = to_device(tokens.k, h.dtype);
    const Buffer v = to_device(tokens.v, h.dtype);
    const Buffer table = Buffer::of(std::span<const std::int32_t>(std::vector<std::int32_t>{0}));
    Buffer out(5 * 2 * 64 * 2), lse(5 * 2 * 4), workspace(plan.workspace_bytes());
    out.poison();
    const KvView view{.k = k.data(),
                      .v = v.data(),
                      .dtype = h.dtype,
                      .layers = 1,
                      .kv_heads = 1,
                      .head_dim = 64,
                      .page_size = 5,
                      .pages = 1,
                      .page_table = table.as<std::int32_t>(),
                      .table_stride = 1};
    upload(plan, workspace.workspace(), {});
    attention(plan, {q.data(), h.dtype, 5, 128}, view, 0, {out.data(), h.dtype, 5, 128},
              lse.as<float>(), workspace.workspace(), {});
    synchronize({});
    const Bits bits = from_device(out, h.dtype);
    const auto sums = lse.values<float>();
    for (std::size_t i = 0; i < 3 * 128; ++i) ASSERT_EQ(bits[i], 0);
    for (std::size_t i = 0; i < 6; ++i) ASSERT_EQ(sums[i], -INFINITY);
    // The fourth sees one key, so its output is that value.
    for (std::size_t d = 0; d < 64; ++d) ASSERT_EQ(bits[3 * 128 + d], tokens.v[d]);
  }
}

TEST_F(GpuAttention, ABadPageIsReportedAndNotRead) {
  // A tile and a bit, the second page of which is bad: its keys count as zeros, whoever reads them.
  const Heads h{2, 1, 64};
  const Tokens tokens(h, 1, 1);
  constexpr std::int32_t keys = 144;
  for (const int page : {4, 16}) {
    for (const std::int32_t bad : {-1, 1, 1 << 30}) {
      std::vector<std::int32_t> entries(static_cast<std::size_t>(keys / page), 0);
      entries[1] = bad;
      const Buffer q = to_device(tokens.q, h.dtype),
                   table = Buffer::of(std::span<const int>(entries));
      const Buffer kv =
          to_device(Bits(static_cast<std::size_t>(page) * 64, bits_of(0.5f, h.dtype)), h.dtype);
      const KvView view{.k = kv.data(),
                        .v = kv.data(),
                        .dtype = h.dtype,
                        .layers = 1,
                        .kv_heads = 1,
                        .head_dim = 64,
                        .page_size = page,
                        .pages = 1,
                        .page_table = table.as<std::int32_t>(),
                        .table_stride = keys / page};
      std::vector<Bits> outputs;
      for (const AttentionOptions& options : {kRowsMma, kRows, kDividedMma, kDivided, kSplits}) {
        const AttentionPlan plan = plan_attention(h.shape(), std::vector<std::int32_t>{0, 1},
                                                  std::vector<std::int32_t>{keys}, options);
        Buffer fault = Buffer::of(std::span<const std::int32_t>(std::vector<std::int32_t>{0}));
        Buffer out(128 * 2), workspace(plan.workspace_bytes());
        out.poison();
        upload(plan, workspace.workspace(), {});
        attention(plan, {q.data(), h.dtype, 1, 128}, view, 0, {out.data(), h.dtype, 1, 128},
                  nullptr, workspace.workspace(), {}, fault.as<std::int32_t>());
        synchronize({});
        EXPECT_EQ(fault.values<std::int32_t>()[0], 1) << "pages of " << page;
        outputs.push_back(from_device(out, h.dtype));
        EXPECT_EQ(outputs.back(), outputs.front()) << "pages of " << page;
      }
    }
  }
}

TEST_F(GpuAttention, NotANumberStaysInItsSequence) {
  const Heads h{4, 2, 128};
  const Tokens good(h, 200, 1), other(h, 130, 2);
  Tokens bad(h, 200, 3);
  bad.v[5] = bad.k[70] = 0x7fc0;
  const Outcome alone = attend_packed(h, {{&good, 0, 200}});
  const Outcome mixed = attend_packed(h, {{&other, 0, 130}, {&bad, 0, 200}, {&good, 0, 200}});
  expect_same_rows(h, alone, mixed, 330, {&good, 0, 200}, "after a neighbour with NaN");
  EXPECT_TRUE(
      std::isnan(value_of(mixed.out[static_cast<std::size_t>((130 + 199) * 512 + 5)], h.dtype)));
}

}  // namespace
}  // namespace rose::kernels::gpu
