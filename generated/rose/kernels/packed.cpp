// Pack a matrix, and say what the bits stand for.

#include "rose/kernels/packed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "rose/core/error.h"
#include "rose/kernels/quant.h"

namespace rose::kernels {

using gpu::WeightFormat;

// Measure what is packed.
std::int64_t PackedMatrix::groups() const {
  const std::int64_t size = group_size();
  return size == 0 ? 0 : (cols + size - 1) / size;
}

std::int64_t PackedMatrix::row_bytes() const {
  return format == WeightFormat::int4 ? cols / 2 : cols;
}

std::int64_t PackedMatrix::bytes() const {
  return static_cast<std::int64_t>(data.size() + scales.size() * sizeof(float) + zeros.size());
}

std::string_view name(WeightFormat format) {
  switch (format) {
    case WeightFormat::int8: return "int8";
    case WeightFormat::int4: return "int4";
    default: return "fp8";
  }
}

bool can_pack(WeightFormat format, std::int64_t cols, std::int64_t group) {
  constexpr std::int64_t narrow = 16, smallest = 32;
  const std::int64_t unit = format == WeightFormat::int4 ? smallest : narrow;
  return cols > 0 && cols % unit == 0 && group >= 0 && group % smallest == 0;
}

// Choose the scale of a group.
namespace {

constexpr float most_int8 = 127.0f, most_fp8 = 448.0f;
constexpr float least_int4 = -8.0f, most_int4 = 7.0f;

float four_bits(float value, float scale) {
  return std::clamp(std::nearbyint(value / scale), least_int4, most_int4);
}

/// How much of a group's squares a scale of four bits loses.
double loss(std::span<const float> group, float scale) {
  double sum = 0.0;
  for (const float value : group) {
    const double error = static_cast<double>(value) - four_bits(value, scale) * scale;
    sum += error * error;
  }
  return sum;
}

float choose_scale(std::span<const float> group, WeightFormat format) {
  float largest = 0.0f;  // with its sign
  for (const float value : group)
    if (std::fabs(value) > std::fabs(largest)) largest = value;
  if (largest == 0.0f) return 1.0f;
  if (format == WeightFormat::int8) return std::fabs(largest) / most_int8;
  if (format == WeightFormat::fp8_e4m3) return std::fabs(largest) / most_fp8;
  constexpr std::array<float, 7> shares{1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f};
  float best = 0.0f;
  double least = 0.0;
  for (const float share : shares) {
    for (const float scale : {largest / least_int4 * share, largest / most_int4 * share}) {
      const double lost = loss(group, scale);
      if (best != 0.0f && lost >= least) continue;
      best = scale, least = lost;
    }
  }
  return best;
}

}  // namespace

// Round to the nearest numbers of the format.
namespace {

void pack_row(std::span<const float> row, PackedMatrix& to, std::int64_t at) {
  const auto size = static_cast<std::size_t>(to.group_size());
  float* const scales = to.scales.data() + at * to.groups();
  std::uint8_t* const bytes = to.data.data() + at * to.row_bytes();
  for (std::size_t first = 0; first < row.size(); first += size) {
    const auto group = row.subspan(first, std::min(size, row.size() - first));
    const float scale = choose_scale(group, to.format);
    scales[first / size] = scale;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const float value = group[i];
      const std::size_t k = first + i;
      if (to.format == WeightFormat::fp8_e4m3) {
        bytes[k] = to_f8_e4m3(value / scale).bits;
      } else if (to.format == WeightFormat::int8) {
        bytes[k] = static_cast<std::uint8_t>(static_cast<int>(std::nearbyint(value / scale)));
      } else {
        const int level = static_cast<int>(four_bits(value, scale) - least_int4);
        const int before = k % 2 == 0 ? 0 : bytes[k / 2];
        bytes[k / 2] = static_cast<std::uint8_t>(before | level << (k % 2 * 4));
      }
    }
  }
}

}  // namespace

PackedMatrix pack_matrix(const MatrixView& w, WeightFormat format, std::int64_t group,
                         core::ThreadPool& pool) {
  if (!can_pack(format, w.cols, group)) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} columns in groups of {} cannot be packed as {}", w.cols,
                                  group, name(format)))
        .in("w");
  }
  PackedMatrix to;
  to.format = format, to.rows = w.rows, to.cols = w.cols, to.group = group;
  to.data.resize(static_cast<std::size_t>(w.rows * to.row_bytes()));
  to.scales.resize(static_cast<std::size_t>(w.rows * to.groups()));
  pool.for_range(w.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(w.cols));
    for (std::int64_t r = begin; r < end; ++r) {
      dequantize_row(w.dtype, w.row(r), row.data(), w.cols);
      if (!std::ranges::all_of(row, [](float value) { return std::isfinite(value); })) {
        throw core::Error(core::Code::invalid_argument,
                          fmt::format("row {} has a weight that is not finite", r))
            .in("w");
      }
      pack_row(row, to, r);
    }
  });
  return to;
}

// Say what a row stands for.
void unpack_row(const PackedMatrix& w, std::int64_t row, float* out) {
  constexpr int middle = 8, nibble = 15;
  const std::uint8_t* const bytes = w.data.data() + row * w.row_bytes();
  const std::int64_t size = w.group_size(), first = row * w.groups();
  for (std::int64_t k = 0; k < w.cols; ++k) {
    const auto group = static_cast<std::size_t>(first + k / size);
    float number = 0.0f;
    if (w.format == WeightFormat::int4) {
      const int zero = w.zeros.empty() ? middle : w.zeros[group];
      number = static_cast<float>((bytes[k / 2] >> (k % 2 * 4) & nibble) - zero);
    } else if (w.format == WeightFormat::int8) {
      number = static_cast<float>(static_cast<std::int8_t>(bytes[k]));
    } else {
      number = to_float(f8_e4m3{bytes[k]});
    }
    out[k] = to_float(to_bf16(number * w.scales[group]));
  }
}

}  // namespace rose::kernels
