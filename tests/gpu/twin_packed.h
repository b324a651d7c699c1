// Packed weights and adapters, bit for bit as a CPU that multiplies as a tensor core does.
#pragma once

#include <cmath>

#include "rose/kernels/gpu/linear_packed.h"
#include "rose/kernels/packed_reference.h"
#include "twins.h"

namespace rose::kernels::gpu {

inline void twin_linear_packed(Fuzz& fuzz) {
  const auto format = fuzz.one_of({WeightFormat::int8, WeightFormat::int4, WeightFormat::fp8_e4m3});
  const std::int64_t m = fuzz.size(40), n = fuzz.size(70), k = fuzz.some(320, 32);
  const std::int64_t group = fuzz.one_of<std::int64_t>({0, 32, 64, 128});
  const std::int64_t size = group == 0 ? k : group, per_row = (k + size - 1) / size;
  fuzz.misalign(false);  // rows of x begin at multiples of 16 bytes
  const Input x = fuzz.input(m, k, DType::bf16), bias = fuzz.input(1, n, DType::bf16);
  const Output y = fuzz.output(m, n, DType::bf16);
  const bool with_bias = fuzz.coin();
  PackedMatrix w;
  w.format = format, w.rows = n, w.cols = k, w.group = group;
  w.data.resize(static_cast<std::size_t>(format == WeightFormat::int4 ? n * k / 2 : n * k));
  for (std::uint8_t& byte : w.data) {
    byte = static_cast<std::uint8_t>(fuzz.below(256));
    if (format == WeightFormat::fp8_e4m3 && (byte & 0x7f) == 0x7f) byte = 0;  // NaN
  }
  w.scales.resize(static_cast<std::size_t>(n * per_row));
  for (float& scale : w.scales) scale = 0.001f + 0.01f * fuzz.uniform();
  if (format == WeightFormat::int4 && fuzz.coin())
    for (std::size_t i = 0; i < w.scales.size(); ++i)
      w.zeros.push_back(static_cast<std::uint8_t>(fuzz.below(17)));
  const Buffer data = Buffer::of(std::span<const std::uint8_t>(w.data)),
               on_device = Buffer::of(std::span<const float>(w.scales)),
               zeros_on_device = Buffer::of(std::span<const std::uint8_t>(w.zeros));
  linear_packed(x.view(),
                {.data = data.data(),
                 .format = format,
                 .rows = n,
                 .cols = k,
                 .scales = on_device.as<float>(),
                 .group = group,
                 .zeros = w.zeros.empty() ? nullptr : zeros_on_device.as<std::uint8_t>()},
                with_bias ? bias.view().data : nullptr, y.view(), {});
  std::vector<float> want(static_cast<std::size_t>(m * n));
  const std::span<const float> added =
      with_bias ? std::span<const float>(bias.values()) : std::span<const float>{};
  kernels::reference::linear_packed(x.values(), w, added, want);
  expect_same_bits(y.matrix.values(), want, "packed of (" + fuzz.drawn() + ")");
  y.matrix.expect_guards("packed");
}

inline void twin_adapters(Fuzz& fuzz) {
  const std::int64_t k = fuzz.some(160, 8), n = fuzz.some(60), rank = fuzz.some(32, 8);
  std::vector<std::int32_t> offsets{0};
  const std::uint32_t groups = fuzz.below(5);
  for (std::uint32_t g = 0; g < groups; ++g)
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(fuzz.size(24)));
  const std::int64_t m = offsets.back();
  fuzz.misalign(false);
  const Input x = fuzz.input(m, k, DType::bf16), start = fuzz.input(m, n, DType::bf16);
  std::vector<Input> a, b;
  std::vector<const void*> a_at, b_at;
  std::vector<float> scales;
  for (std::uint32_t g = 0; g < groups; ++g) {
    const auto values = [&](std::int64_t count) {
      std::vector<float> v(static_cast<std::size_t>(count));
      for (float& value : v) value = fuzz.uniform() - 0.5f;
      return v;
    };
    a.emplace_back(values(rank * k), rank, k, DType::bf16, Layout{});
    b.emplace_back(values(n * rank), n, rank, DType::bf16, Layout{});
    const bool none = fuzz.below(4) == 0;
    a_at.push_back(none ? nullptr : a.back().view().data);
    b_at.push_back(none ? nullptr : b.back().view().data);
    scales.push_back(0.25f + fuzz.uniform());
  }
  const Buffer da = Buffer::of(std::span<const void* const>(a_at)),
               db = Buffer::of(std::span<const void* const>(b_at)),
               ds = Buffer::of(std::span<const float>(scales)),
               places = Buffer::of(std::span<const std::int32_t>(offsets));
  Buffer workspace(adapters_workspace(m, rank));
  workspace.poison();
  add_adapters(x.view(),
               {.a = da.as<const void*>(),
                .b = db.as<const void*>(),
                .scales = ds.as<float>(),
                .offsets = places.as<std::int32_t>(),
                .count = groups,
                .rank = rank},
               start.view(), workspace.workspace(), {});
  std::vector<float> want = start.values();
  std::vector<kernels::reference::AdapterGroup> twins;
  for (std::size_t g = 0; g < groups; ++g) {
    const bool none = a_at[g] == nullptr;
    twins.push_back({.rows = static_cast<std::size_t>(offsets[g + 1] - offsets[g]),
                     .a = none ? std::span<const float>{} : std::span(a[g].values()),
                     .b = none ? std::span<const float>{} : std::span(b[g].values()),
                     .scale = scales[g]});
  }
  kernels::reference::add_adapters(x.values(), static_cast<std::size_t>(k), twins, want,
                                   static_cast<std::size_t>(n));
  expect_same_bits(start.current(), want, "adapters of (" + fuzz.drawn() + ")");
}

}  // namespace rose::kernels::gpu
