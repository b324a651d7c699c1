// Tests of the chapter "KV-cache kernels and paged decode".

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

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/attention.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/kv_cache.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/kv_cache.h"

namespace rose::kernels {
namespace {

// A fork, a copy, an append.
TEST(KvCopyOnWrite, AForkKeepsItsPrefixAndWritesElsewhere) {
  std::vector<float> k(4 * 2), v(4 * 2);
  std::vector<std::int32_t> table{3, 1, 3, 1};
  const KvView view{.k = k.data(),
                    .v = v.data(),
                    .dtype = DType::f32,
                    .layers = 1,
                    .kv_heads = 1,
                    .head_dim = 1,
                    .page_size = 2,
                    .pages = 4,
                    .page_table = table.data(),
                    .table_stride = 2};
  const auto put = [&](std::int64_t sequence, std::int64_t position, float value) {
    k[static_cast<std::size_t>(view.offset(0, sequence, 0, position))] = value;
    v[static_cast<std::size_t>(view.offset(0, sequence, 0, position))] = -value;
  };
  for (int i = 0; i < 3; ++i) put(0, i, 10.0f + static_cast<float>(i));
  kv_copy_pages(view, std::vector<KvPageCopy>{{1, 0}});
  table[3] = 0;
  put(1, 3, 99.0f);

  std::vector<float> keys(8), values(8);
  const std::vector<KvPlace> places{{0, 0}, {0, 1}, {0, 2}, {1, 0},
                                    {1, 1}, {1, 2}, {1, 3}, {0, -1}};
  kv_gather(view, 0, places, keys.data(), values.data());
  EXPECT_EQ(keys, (std::vector<float>{10, 11, 12, 10, 11, 12, 99, 0}));
  EXPECT_EQ(values[6], -99.0f);
  EXPECT_EQ(k[static_cast<std::size_t>(view.offset(0, 0, 0, 3))],
            0.0f);  // the first sequence's slot is still empty
  EXPECT_THROW(kv_copy_pages(view, std::vector<KvPageCopy>{{1, 4}}), core::Error);
  EXPECT_THROW(kv_gather(view, 0, std::vector<KvPlace>{{0, 4}}, keys.data(), values.data()),
               core::Error);
}

// An entry outside the cache is refused, and nothing is read or written.
TEST(KvPages, AnEntryThatNamesNoPageIsRefused) {
  core::ThreadPool pool(1);
  std::vector<float> k(2 * 4), v(2 * 4);
  for (const std::int32_t wrong : {-1, 2, 1 << 30}) {
    const std::vector<std::int32_t> table{1, wrong};
    const KvView view{.k = k.data(),
                      .v = v.data(),
                      .dtype = DType::f32,
                      .layers = 1,
                      .kv_heads = 1,
                      .head_dim = 2,
                      .page_size = 2,
                      .pages = 2,
                      .page_table = table.data(),
                      .table_stride = 2};
    const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 1.0f};
    const std::vector<float> row{1, 2};
    std::vector<float> out(2);
    const std::vector<std::int32_t> offsets{0, 1};
    const auto at = [&](std::int32_t position) {
      const std::vector<std::int32_t> positions{position};
      kv_append(row, row, view, 0, offsets, positions, pool);
      attention(row, view, 0, offsets, positions, shape, out, {}, pool);
      kv_gather(view, 0, std::vector<KvPlace>{{0, position}}, out.data(), out.data());
    };
    at(1);  // the first page is one
    const std::vector<float> before = k;
    try {
      at(2);
      ADD_FAILURE() << "page " << wrong << " was followed";
    } catch (const core::Error& error) {
      EXPECT_EQ(error.argument(), "page_table");
      EXPECT_EQ(error.code(), core::Code::out_of_range);
    }
    EXPECT_EQ(k, before);
    const std::vector<std::int32_t> third{2};
    EXPECT_THROW(attention(row, view, 0, offsets, third, shape, out, {}, pool), core::Error);
    EXPECT_THROW(kv_gather(view, 0, std::vector<KvPlace>{{0, 2}}, out.data(), out.data()),
                 core::Error);
  }
}

// A full page is left behind, shared or not.
TEST(KvRollover, OnlyAFullPageIsFollowedByTheNext) {
  std::vector<std::int32_t> table{3, 1, -1, 3, 1, -1}, taken(3, 7);
  const KvView view{.dtype = DType::f32,
                    .layers = 1,
                    .kv_heads = 1,
                    .head_dim = 1,
                    .page_size = 2,
                    .pages = 6,
                    .page_table = table.data(),
                    .table_stride = 3};
  kv_rollover(view, std::vector<KvGrowth>{{0, 3, 5}, {1, 4, 4}, {0, -1, 2}}, table, taken);
  EXPECT_EQ(table, (std::vector<std::int32_t>{3, 1, -1, 3, 1, 4}));
  EXPECT_EQ(taken, (std::vector<std::int32_t>{0, 1, 0}));
  std::vector<std::int32_t> one(1);
  kv_rollover(view, std::vector<KvGrowth>{{0, 0, 2}}, table, one);  // an empty sequence begins so
  EXPECT_EQ(table[0], 2);
  for (const KvGrowth wrong : {KvGrowth{0, 6, 1}, {0, 4, 6}, {2, 0, 1}, {0, 0, -1}}) {
    EXPECT_THROW(kv_rollover(view, std::vector<KvGrowth>{wrong}, table, one), core::Error);
  }
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// Append, copy, gather: every slot as the host says.
struct KvCacheProblem {
  int kv_heads, head_dim, page_size;
  std::int64_t heads, tokens;
  DType dtype;
};

using KvCacheGpu = GpuTest;

TEST_F(KvCacheGpu, AppendsCopiesAndGathers) {
  for (const KvCacheProblem& p : {KvCacheProblem{2, 64, 16, 6, 50, DType::bf16},
                                  {1, 128, 7, 8, 33, DType::f16},
                                  {3, 96, 1, 3, 5, DType::bf16},
                                  {8, 256, 64, 8, 1, DType::bf16}}) {
    const std::int64_t stride = 60 / p.page_size + 1, pages = 3 * stride,
                       width = p.kv_heads * p.head_dim;
    // Draw tokens, angles and a page table.
    const auto bits_of = [&](float x) {
      return p.dtype == DType::bf16 ? to_bf16(x).bits : to_f16(x).bits;
    };
    const auto value_of = [&](std::uint16_t b) {
      return p.dtype == DType::bf16 ? to_float(bf16{b}) : to_float(f16{b});
    };
    core::Rng rng(p.heads + 1);
    const auto draw = [&](std::int64_t count) {
      std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
      for (auto& b : bits) b = bits_of(rng.normal());
      return bits;
    };
    auto q = draw(p.tokens * p.heads * p.head_dim), k = draw(p.tokens * width),
         v = draw(p.tokens * width);
    std::vector<float> cosines(static_cast<std::size_t>(p.tokens * p.head_dim / 2)),
        sines = cosines;
    for (std::size_t i = 0; i < cosines.size(); ++i) {
      const float angle = 6.0f * rng.uniform();
      cosines[i] = std::cos(angle);
      sines[i] = std::sin(angle);
    }
    // Two sequences, tokens in turn; the third token is padding. Sequence 2 has only bad pages and no tokens yet.
    std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<std::int32_t>(table.size() - 1 - i);
    std::vector<KvPlace> places;
    for (std::int32_t t = 0; t < p.tokens; ++t) places.push_back({t % 2, t == 2 ? -1 : t / 2});
    // Put the same cache on the host and on the device, every slot NaN.
    const std::int64_t elements = 2 * pages * p.kv_heads * p.page_size * p.head_dim;
    std::vector<std::uint16_t> keys(static_cast<std::size_t>(elements), 0xffff), values = keys;
    KvView host{.k = keys.data(),
                .v = values.data(),
                .dtype = p.dtype,
                .layers = 2,
                .kv_heads = p.kv_heads,
                .head_dim = p.head_dim,
                .page_size = p.page_size,
                .pages = pages,
                .page_table = table.data(),
                .table_stride = stride};
    Buffer on_q = Buffer::of(std::span<const std::uint16_t>(q)),
           on_k = Buffer::of(std::span<const std::uint16_t>(k)),
           on_v = Buffer::of(std::span<const std::uint16_t>(v)),
           on_keys = Buffer::of(std::span<const std::uint16_t>(keys)),
           on_values = Buffer::of(std::span<const std::uint16_t>(values)),
           on_table = Buffer::of(std::span<const std::int32_t>(table)),
           on_places = Buffer::of(std::span<const KvPlace>(places)),
           on_cos = Buffer::of(std::span<const float>(cosines)),
           on_sin = Buffer::of(std::span<const float>(sines)),
           fault = Buffer::of(std::span<const std::int32_t>(std::vector<std::int32_t>{0}));
    KvView device = host;
    device.k = on_keys.data();
    device.v = on_values.data();
    device.page_table = on_table.as<std::int32_t>();
    const Matrix mq{on_q.data(), p.dtype, p.tokens, p.heads * p.head_dim},
        mk{on_k.data(), p.dtype, p.tokens, width}, mv{on_v.data(), p.dtype, p.tokens, width};
    // What the host expects.
    const int half = p.head_dim / 2;
    const auto turned = [&](const std::vector<std::uint16_t>& x, std::int64_t at, std::int64_t t,
                            int d) {
      const auto i = static_cast<std::size_t>(at + d % half),
                 j = static_cast<std::size_t>(at + d % half + half);
      const auto c = static_cast<std::size_t>(t * half + d % half);
      const float a = value_of(x[i]), b = value_of(x[j]);
      return bits_of(d < half ? a * cosines[c] - b * sines[c] : b * cosines[c] + a * sines[c]);
    };
    std::vector<std::uint16_t> want_q(q.size());
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const std::int64_t at = (t * p.heads + h) * p.head_dim;
        for (int d = 0; d < p.head_dim; ++d)
          want_q[static_cast<std::size_t>(at + d)] = turned(q, at, t, d);
      }
      const KvPlace place = places[static_cast<std::size_t>(t)];
      for (int h = 0; h < p.kv_heads && place.position >= 0; ++h) {
        const std::int64_t at = t * width + h * p.head_dim,
                           to = host.offset(1, place.sequence, h, place.position);
        for (int d = 0; d < p.head_dim; ++d) {
          keys[static_cast<std::size_t>(to + d)] = turned(k, at, t, d);
          values[static_cast<std::size_t>(to + d)] = v[static_cast<std::size_t>(at + d)];
        }
      }
    }
    // Append, and compare every slot.
    kv_append(mq, mk, mv, device, 1, on_places.as<KvPlace>(),
              {on_cos.as<float>(), on_sin.as<float>()}, {}, fault.as<std::int32_t>());
    synchronize({});
    EXPECT_EQ(on_q.values<std::uint16_t>(), want_q);
    EXPECT_EQ(on_keys.values<std::uint16_t>(), keys);
    EXPECT_EQ(on_values.values<std::uint16_t>(), values);
    EXPECT_EQ(fault.values<std::int32_t>()[0], 0);
    // A page of sequence 0 over one of sequence 2; then one that does not exist; then gather.
    const std::vector<KvPageCopy> copies{{table[0], table[static_cast<std::size_t>(2 * stride)]},
                                         {0, static_cast<std::int32_t>(pages)}};
    const Buffer on_copies = Buffer::of(std::span<const KvPageCopy>(copies));
    kv_copy_pages(host, std::span(copies).first(1));
    gpu::kv_copy_pages(device, on_copies.as<KvPageCopy>(), 2, {}, fault.as<std::int32_t>());
    synchronize({});
    EXPECT_EQ(on_keys.values<std::uint16_t>(), keys);
    EXPECT_EQ(on_values.values<std::uint16_t>(), values);
    EXPECT_EQ(fault.values<std::int32_t>()[0], 1);

    std::vector<std::uint16_t> want_k(k.size()), want_v(v.size());
    kernels::kv_gather(host, 1, places, want_k.data(), want_v.data());
    on_k.poison();
    on_v.poison();
    gpu::kv_gather(device, 1, on_places.as<KvPlace>(), mk, mv, {});
    synchronize({});
    EXPECT_EQ(on_k.values<std::uint16_t>(), want_k);
    EXPECT_EQ(on_v.values<std::uint16_t>(), want_v);
  }
}

// Norm heads on the way, and apart.
TEST_F(KvCacheGpu, NormsHeadsWithTheBitsOfTheNorm) {
  for (const std::int64_t d : {64, 128, 256}) {
    constexpr std::int64_t heads = 6, kv_heads = 2, tokens = 37, page = 16, pages = 3;
    // Draw one buffer of queries, keys and values, twice, and a place for each token.
    const std::int64_t width = kv_heads * d, all = (heads + 2 * kv_heads) * d;
    const auto x = random_values(tokens * all, 7, 3.0f), w = random_values(2 * d, 8);
    DeviceMatrix fused = DeviceMatrix::of(x, tokens, all, DType::bf16),
                 apart = DeviceMatrix::of(x, tokens, all, DType::bf16),
                 weights = DeviceMatrix::of(w, 2, d, DType::f32);
    const auto part = [&](const DeviceMatrix& of, std::int64_t first, std::int64_t cols) {
      Matrix m = of.view();
      return Matrix{static_cast<std::uint16_t*>(m.data) + first, m.dtype, m.rows, cols, all};
    };
    const auto weight = [&](std::int64_t row) {
      return Matrix{static_cast<float*>(weights.view().data) + row * d, DType::f32, 1, d};
    };
    std::vector<KvPlace> places;
    for (std::int32_t t = 0; t < tokens; ++t) places.push_back({0, t == 5 ? -1 : t});
    const auto angles = random_values(tokens * d, 9);
    const Buffer on_places = Buffer::of(std::span<const KvPlace>(places)),
                 on_angles = Buffer::of(std::span<const float>(angles)),
                 table = Buffer::of(std::span<const std::int32_t>(std::vector<int>{2, 0, 1}));
    const Rotation rotation{on_angles.as<float>(), on_angles.as<float>() + tokens * d / 2};
    std::vector<std::vector<std::uint16_t>> caches;
    for (const bool together : {true, false}) {
      const DeviceMatrix& of = together ? fused : apart;
      const Matrix q = part(of, 0, heads * d), k = part(of, heads * d, width),
                   v = part(of, heads * d + width, width);
      Buffer keys(static_cast<std::size_t>(pages * page * width * 2)), values(keys.bytes());
      keys.poison();
      values.poison();
      const KvView kv{.k = keys.data(),
                      .v = values.data(),
                      .dtype = DType::bf16,
                      .layers = 1,
                      .kv_heads = kv_heads,
                      .head_dim = static_cast<int>(d),
                      .page_size = page,
                      .pages = pages,
                      .page_table = table.as<std::int32_t>(),
                      .table_stride = pages};
      HeadNorm norm{weight(0).data, weight(1).data, DType::f32, 1e-6f};
      if (!together) {
        rmsnorm_heads(q, weight(0), norm.eps, q, nullptr, {});
        rmsnorm_heads(k, weight(1), norm.eps, k, nullptr, {});
        norm = {};
      }
      kv_append(q, k, v, kv, 0, on_places.as<KvPlace>(), rotation, {}, nullptr, norm);
      synchronize({});
      caches.push_back(keys.values<std::uint16_t>());
      caches.push_back(values.values<std::uint16_t>());
    }
    EXPECT_EQ(caches[0], caches[2]) << d;
    EXPECT_EQ(caches[1], caches[3]) << d;
    const auto queries = [&](const DeviceMatrix& m) {
      std::vector<float> all_of = m.values(), q;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const auto row = all_of.begin() + t * all;
        q.insert(q.end(), row, row + heads * d);
      }
      return q;
    };
    expect_same_bits(queries(fused), queries(apart), "queries");
  }
}

// Errors of the cache's kernels name the argument.
TEST(KvCacheChecks, ErrorsNameTheArgument) {
  const auto argument_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return "nothing";
  };
  alignas(256) static std::byte memory[4096];
  const std::int32_t table[1] = {0};
  const KvView kv{.k = memory,
                  .v = memory,
                  .dtype = DType::bf16,
                  .layers = 1,
                  .kv_heads = 1,
                  .head_dim = 64,
                  .page_size = 2,
                  .pages = 1,
                  .page_table = table,
                  .table_stride = 1};
  const Matrix row{memory, DType::bf16, 1, 64}, none{};
  const KvPlace place[1] = {{0, 0}};
  const float angle[32] = {};
  EXPECT_EQ(argument_of([&] { kv_append(none, row, row, kv, 1, place, {}, {}); }), "layer");
  EXPECT_EQ(argument_of([&] {
              kv_append(none, {memory, DType::bf16, 1, 128}, row, kv, 0, place, {}, {});
            }),
            "k");
  EXPECT_EQ(argument_of([&] {
              kv_append({memory, DType::bf16, 1, 96}, row, row, kv, 0, place, {}, {});
            }),
            "q");
  EXPECT_EQ(argument_of([&] { kv_append(none, row, row, kv, 0, nullptr, {}, {}); }), "places");
  EXPECT_EQ(argument_of([&] {
              kv_append(none, row, row, kv, 0, place, {angle, nullptr}, {});
            }),
            "rotation");
  EXPECT_EQ(argument_of([&] {
              kv_append(none, row, row, kv, 0, place, {}, {}, nullptr, {memory, memory});
            }),
            "norm");
  EXPECT_EQ(argument_of([&] {
              kv_gather(kv, 0, place, row, {memory, DType::bf16, 2, 64}, {});
            }),
            "v");
  EXPECT_EQ(argument_of([&] { kv_copy_pages(kv, nullptr, 1, {}); }), "copies");
}

}  // namespace
}  // namespace rose::kernels::gpu

namespace rose::kernels {
namespace {

// A cache of bytes is a cache of bf16 that holds what bytes can say.
TEST(KvBytes, AreReadAsTheirNearestNumbers) {
  constexpr int dim = 16, page = 4, pages = 3;
  std::vector<std::uint8_t> keys(pages * page * dim), values(keys.size());
  const std::vector<std::int32_t> table{2, 0, 1};
  const float scale = 0.5f;
  KvView bytes{.k = keys.data(),
               .v = values.data(),
               .dtype = DType::u8,
               .layers = 1,
               .kv_heads = 1,
               .head_dim = dim,
               .page_size = page,
               .pages = pages,
               .page_table = table.data(),
               .table_stride = pages,
               .k_scale = &scale};
  std::vector<bf16> wide_keys(keys.size()), wide_values(keys.size());
  KvView wide = bytes;
  wide.k = wide_keys.data(), wide.v = wide_values.data(), wide.dtype = DType::bf16;
  core::ThreadPool pool(1);
  constexpr std::int32_t tokens = 9;
  core::Rng rng(1);
  std::vector<float> k(tokens * dim), v(k.size()), q(k.size());
  for (std::size_t i = 0; i < k.size(); ++i)
    k[i] = rng.normal(), v[i] = rng.normal(), q[i] = rng.normal();
  k[0] = 3.1f, k[1] = 1000.0f, v[0] = 3.1f;
  const std::vector<std::int32_t> offsets{0, tokens}, positions{0, 1, 2, 3, 4, 5, 6, 7, 8};
  kv_append(k, v, bytes, 0, offsets, positions, pool);
  const auto first = static_cast<std::size_t>(bytes.offset(0, 0, 0, 0));
  EXPECT_EQ(to_float(f8_e4m3{keys[first]}), 6.0f);
  EXPECT_EQ(to_float(f8_e4m3{keys[first + 1]}), 448.0f);
  EXPECT_EQ(to_float(f8_e4m3{values[first]}), 3.0f);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    wide_keys[i] = to_bf16(to_float(f8_e4m3{keys[i]}) * scale);
    wide_values[i] = to_bf16(to_float(f8_e4m3{values[i]}));
  }
  const AttentionShape shape{1, 1, dim, 0.25f};
  std::vector<float> narrow_out(q.size()), wide_out(q.size());
  attention(q, bytes, 0, offsets, positions, shape, narrow_out, {}, pool);
  attention(q, wide, 0, offsets, positions, shape, wide_out, {}, pool);
  EXPECT_EQ(narrow_out, wide_out);
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// Bytes on a GPU: stored, gathered, attended to.
struct ByteCache {
  static constexpr std::int64_t kv_heads = 2, pages = 60, page = 16, layers = 2, layer = 1;
  std::int64_t dim, tokens;
  DType dtype;
  std::vector<float> k, v, scales{0.5f, 0.25f, 2.0f, 0.125f};
  std::vector<std::int32_t> table;
  std::vector<KvPlace> places;
  Buffer keys, values, wide_keys, wide_values, on_table, on_places, on_scales;

  ByteCache(std::int64_t d, DType type, std::span<const std::int32_t> lengths)
      : dim(d), tokens(0), dtype(type) {
    for (std::int32_t s = 0; s < std::ssize(lengths); ++s) {
      for (std::int32_t p = 0; p < lengths[static_cast<std::size_t>(s)]; ++p)
        places.push_back({s, p});
    }
    tokens = std::ssize(places);
    k = random_values(tokens * kv_heads * dim, 1, 2), v = random_values(tokens * kv_heads * dim, 2);
    for (float& x : k) x = rounded(x, dtype);
    for (float& x : v) x = rounded(x, dtype);
    for (std::int32_t i = 0; i < pages; ++i) table.push_back((i * 7 + 3) % pages);
    const auto count = static_cast<std::size_t>(layers * pages * kv_heads * page * dim);
    keys = Buffer(count), values = Buffer(count);
    wide_keys = Buffer(2 * count), wide_values = Buffer(2 * count);
    keys.poison(), values.poison();
    on_table = Buffer::of(std::span<const std::int32_t>(table));
    on_places = Buffer::of(std::span<const KvPlace>(places));
    on_scales = Buffer::of(std::span<const float>(scales));
  }
  KvView view(bool bytes) const {
    return {.k = bytes ? keys.data() : wide_keys.data(),
            .v = bytes ? values.data() : wide_values.data(),
            .dtype = bytes ? DType::u8 : dtype,
            .layers = layers,
            .kv_heads = kv_heads,
            .head_dim = static_cast<int>(dim),
            .page_size = page,
            .pages = pages,
            .page_table = on_table.as<std::int32_t>(),
            .table_stride = pages / 3,
            .k_scale = bytes ? on_scales.as<float>() : nullptr,
            .v_scale = nullptr};
  }
  std::size_t at(KvPlace place, std::int64_t head) const {
    KvView host = view(true);
    host.page_table = table.data();
    return static_cast<std::size_t>(
        host.offset(layer, place.sequence, static_cast<int>(head), place.position));
  }
  // What the host stores, and the same numbers in a wider cache.

  /// Expects the host's bytes of the device, and writes what they stand for to the wide cache.
  void expect_bytes_and_widen() {
    const std::vector<std::uint8_t> stored = keys.values<std::uint8_t>(),
                                    stored_v = values.values<std::uint8_t>();
    std::vector<std::byte> wide_k(2 * stored.size(), std::byte{0}), wide_v(wide_k);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < kv_heads * dim; ++i) {
        const auto from = static_cast<std::size_t>(t * kv_heads * dim + i);
        const std::size_t to =
            at(places[static_cast<std::size_t>(t)], i / dim) + static_cast<std::size_t>(i % dim);
        const float scale = scales[static_cast<std::size_t>(layer * kv_heads + i / dim)];
        ASSERT_EQ(stored[to], to_f8_e4m3(k[from] / scale).bits) << t << " " << i;
        ASSERT_EQ(stored_v[to], to_f8_e4m3(v[from]).bits) << t << " " << i;
        store(to_float(f8_e4m3{stored[to]}) * scale, dtype, wide_k.data() + 2 * to);
        store(to_float(f8_e4m3{stored_v[to]}), dtype, wide_v.data() + 2 * to);
      }
    }
    wide_keys.upload(wide_k);
    wide_values.upload(wide_v);
  }
};

// Either kernel, every width.
TEST_F(KvCacheGpu, BytesHaveTheBitsOfTheNumbersTheyStandFor) {
  const std::vector<std::int32_t> lengths{1, 70, 315};
  for (const std::int64_t dim : {64, 96, 128, 256}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      ByteCache cache(dim, dtype, lengths);
      const std::int64_t width = ByteCache::kv_heads * dim, heads = 4;
      const auto rows = [&](const std::vector<float>& x, std::int64_t cols) {
        return DeviceMatrix::of(x, cache.tokens, cols, dtype);
      };
      const DeviceMatrix k = rows(cache.k, width), v = rows(cache.v, width),
                         q = rows(random_values(cache.tokens * heads * dim, 3), heads * dim);
      kv_append({}, k.view(), v.view(), cache.view(true), ByteCache::layer,
                cache.on_places.as<KvPlace>(), {}, {});
      synchronize({});
      cache.expect_bytes_and_widen();
      const DeviceMatrix back(cache.tokens, width, dtype), wide(cache.tokens, width, dtype),
          other(cache.tokens, width, dtype);
      kv_gather(cache.view(true), ByteCache::layer, cache.on_places.as<KvPlace>(), back.view(),
                other.view(), {});
      kv_gather(cache.view(false), ByteCache::layer, cache.on_places.as<KvPlace>(), wide.view(),
                other.view(), {});
      expect_same_bits(back.values(), wide.values(), "gathered");
      for (const AttentionPath path : {AttentionPath::rows, AttentionPath::splits}) {
        const AttentionPlan plan =
            plan_attention({heads, ByteCache::kv_heads, dim, 0.125f}, std::vector{0, 1, 71, 386},
                           lengths, {.path = path});
        const Buffer workspace(plan.workspace_bytes());
        upload(plan, workspace.workspace(), {});
        const DeviceMatrix narrow_out(cache.tokens, heads * dim, dtype),
            wide_out(cache.tokens, heads * dim, dtype);
        for (const bool bytes : {true, false}) {
          attention(plan, q.view(), cache.view(bytes), ByteCache::layer,
                    bytes ? narrow_out.view() : wide_out.view(), nullptr, workspace.workspace(),
                    {});
        }
        expect_same_bits(narrow_out.values(), wide_out.values(), "attention");
        narrow_out.expect_guards("attention");
      }
    }
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
