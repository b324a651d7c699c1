// Pages of a cache: what moves and grows them, bit for bit as on the host.
#pragma once

#include <numeric>

#include "rose/kernels/gpu/kv_cache.h"
#include "rose/kernels/gpu/tokens.h"
#include "twins.h"

namespace rose::kernels::gpu {

/// Pages copied onto others, each once; one copy in four names a page that does not exist and must be left alone.
inline void twin_kv_copy_pages(Fuzz& fuzz) {
  const DType dtype = fuzz.activation();
  const int layers = 1 + static_cast<int>(fuzz.below(3)),
            heads = 1 + static_cast<int>(fuzz.below(3)),
            dim = 16 * (1 + static_cast<int>(fuzz.below(8))),
            page = static_cast<int>(fuzz.one_of({1, 3, 16, 64}));
  const std::int64_t pages = 2 + fuzz.size(12);
  const auto numbers = static_cast<std::size_t>(layers * pages * heads * page * dim);
  const std::size_t bytes = numbers * element_bytes(dtype);
  std::vector<std::uint8_t> keys(bytes), values(bytes);
  for (std::uint8_t& byte : keys) byte = static_cast<std::uint8_t>(fuzz.below(256));
  for (std::uint8_t& byte : values) byte = static_cast<std::uint8_t>(fuzz.below(256));
  const Buffer k = Buffer::of(std::span<const std::uint8_t>(keys)),
               v = Buffer::of(std::span<const std::uint8_t>(values));
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[fuzz.below(static_cast<std::uint32_t>(i))]);
  }
  std::vector<KvPageCopy> copies, right;
  for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
    right.push_back({order[i], order[i + 1]});
    copies.push_back(right.back());
    if (fuzz.below(4) == 0) copies.push_back({order[i], static_cast<std::int32_t>(pages)});
  }
  KvView view{.k = keys.data(),
              .v = values.data(),
              .dtype = dtype,
              .layers = layers,
              .kv_heads = heads,
              .head_dim = dim,
              .page_size = page,
              .pages = pages};
  kernels::kv_copy_pages(view, right);
  view.k = k.data(), view.v = v.data();
  const std::vector<std::int32_t> none{0};
  const Integers table(none);
  view.page_table = table.data(), view.table_stride = 1;
  const Buffer list = Buffer::of(std::span<const KvPageCopy>(copies));
  kv_copy_pages(view, list.as<KvPageCopy>(), static_cast<std::int64_t>(copies.size()), {});
  synchronize({});
  EXPECT_EQ(k.values<std::uint8_t>(), keys) << fuzz.drawn();
  EXPECT_EQ(v.values<std::uint8_t>(), values) << fuzz.drawn();
}

/// Sequences of any length are offered pages; some places and pages do not exist.
inline void twin_kv_rollover(Fuzz& fuzz) {
  const std::int64_t sequences = fuzz.size(700), stride = 1 + fuzz.below(9);
  const int page = static_cast<int>(fuzz.one_of({1, 2, 16, 64}));
  const std::int64_t pages = 1 + fuzz.below(100);
  std::vector<std::int32_t> table(static_cast<std::size_t>(sequences * stride + 1), -1);
  std::vector<KvGrowth> growths, right;
  std::vector<std::int32_t> taken;
  bool wrong_one = false;
  for (std::int32_t s = 0; s < sequences; ++s) {
    const auto index = static_cast<std::int32_t>(fuzz.below(static_cast<std::uint32_t>(stride)));
    KvGrowth growth{s, index * page,
                    static_cast<std::int32_t>(fuzz.below(static_cast<std::uint32_t>(pages)))};
    if (fuzz.coin())
      growth.length += static_cast<std::int32_t>(fuzz.below(static_cast<std::uint32_t>(page)));
    if (fuzz.below(8) == 0) growth.length = -1;
    const bool wrong = fuzz.below(8) == 0;
    if (wrong) growth.length = static_cast<std::int32_t>(stride) * page;
    growths.push_back(growth);
    right.push_back(wrong ? KvGrowth{s, -1, 0} : growth);
    wrong_one = wrong_one || wrong;
  }
  KvView view{.page_size = page, .pages = pages, .table_stride = stride};
  Buffer device_table = Buffer::of(std::span<const std::int32_t>(table)),
         answers(growths.size() * sizeof(std::int32_t));
  answers.poison();
  const Buffer fault = Buffer::of(std::span<const std::int32_t>(std::vector<std::int32_t>{0})),
               list = Buffer::of(std::span<const KvGrowth>(growths));
  view.page_table = table.data();
  taken.resize(growths.size());
  kernels::kv_rollover(view, right, table, taken);
  view.page_table = device_table.as<std::int32_t>();
  kv_rollover(view, list.as<KvGrowth>(), sequences, device_table.as<std::int32_t>(),
              answers.as<std::int32_t>(), {}, fault.as<std::int32_t>());
  synchronize({});
  EXPECT_EQ(device_table.values<std::int32_t>(), table) << fuzz.drawn();
  EXPECT_EQ(answers.values<std::int32_t>(), taken) << fuzz.drawn();
  EXPECT_EQ(fault.values<std::int32_t>()[0], wrong_one ? 1 : 0) << fuzz.drawn();
}

/// Ids that are tokens, promises of a row's choice, or promises of a row that is not there.
inline void twin_resolve_tokens(Fuzz& fuzz) {
  const std::int64_t tokens = fuzz.size(3000), count = fuzz.some(300);
  std::vector<std::int32_t> ids, chosen, want;
  for (std::int64_t i = 0; i < count; ++i)
    chosen.push_back(static_cast<std::int32_t>(fuzz.below(200'000)));
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto row = static_cast<std::int32_t>(fuzz.below(static_cast<std::uint32_t>(count) + 3));
    const bool promised = fuzz.coin();
    ids.push_back(promised ? -1 - row : row);
    want.push_back(!promised ? row : row < count ? chosen[static_cast<std::size_t>(row)] : -1);
  }
  const Integers from(ids), choices(chosen);
  Buffer out(ids.size() * sizeof(std::int32_t));
  out.poison();
  resolve_tokens(from.data(), tokens, choices.data(), count, out.as<std::int32_t>(), {});
  synchronize({});
  EXPECT_EQ(out.values<std::int32_t>(), want) << fuzz.drawn();
}

/// Entries of a table, each changed at most once, some outside.
inline void twin_scatter_entries(Fuzz& fuzz) {
  const std::int64_t size = fuzz.some(3000);
  std::vector<std::int32_t> table(static_cast<std::size_t>(size), 7);
  const Buffer device = Buffer::of(std::span<const std::int32_t>(table));
  std::vector<TableEntry> entries;
  for (std::int32_t i = 0; i < size; ++i) {
    if (!fuzz.coin()) continue;
    const auto value = static_cast<std::int32_t>(fuzz.below(1000));
    entries.push_back({i, value});
    table[static_cast<std::size_t>(i)] = value;
  }
  entries.push_back({static_cast<std::int32_t>(size), 1});
  entries.push_back({-1, 1});
  const Buffer list = Buffer::of(std::span<const TableEntry>(entries));
  scatter_entries(list.as<TableEntry>(), static_cast<std::int64_t>(entries.size()),
                  device.as<std::int32_t>(), size, {});
  synchronize({});
  EXPECT_EQ(device.values<std::int32_t>(), table) << fuzz.drawn();
}

}  // namespace rose::kernels::gpu
