// Time a kernel that moves bytes, beside a copy.

#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "rose/core/rng.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/instruments.h"

namespace rose::labs {

namespace gpu = rose::kernels::gpu;

// Fill device memory with random numbers.

/// `copies` matrices one after the other, of uniform numbers in [-1, 1).
class BenchArray {
 public:
  BenchArray(int copies, std::int64_t rows, std::int64_t cols, kernels::DType dtype)
      : rows_(rows), cols_(cols), dtype_(dtype) {
    const std::size_t element =
        dtype == kernels::DType::f32 ? sizeof(float) : sizeof(kernels::bf16);
    bytes_ = static_cast<std::size_t>(rows * cols) * element;
    buffer_ = gpu::Buffer(bytes_ * static_cast<std::size_t>(copies));
    constexpr std::size_t piece = std::size_t{1} << 22;
    std::vector<std::byte> host(piece);
    core::Rng rng(1);
    for (std::size_t at = 0; at < piece; at += element) {
      const float value = 2.0f * rng.uniform() - 1.0f;
      const kernels::bf16 narrow = kernels::to_bf16(value);
      std::memcpy(host.data() + at,
                  element == sizeof(float) ? static_cast<const void*>(&value) : &narrow, element);
    }
    for (std::size_t at = 0; at < buffer_.bytes(); at += piece) {
      buffer_.upload(std::span(host).first(std::min(piece, buffer_.bytes() - at)), at);
    }
  }
  gpu::Matrix at(int copy) const {
    auto* const data = buffer_.as<std::byte>() + bytes_ * static_cast<std::size_t>(copy);
    return {.data = data, .dtype = dtype_, .rows = rows_, .cols = cols_};
  }

 private:
  std::int64_t rows_, cols_;
  kernels::DType dtype_;
  std::size_t bytes_ = 0;
  gpu::Buffer buffer_;
};

// Report bytes per second beside the copy's.
struct MemoryCase {
  std::string name;
  double bytes;  ///< that one launch must move
  int copies;
  gpu::Launch launch;
};

inline double gigabytes_per_second(const MemoryCase& c) {
  const gpu::Timing time =
      gpu::time_launches(c.launch, {.copies = c.copies, .rounds = 5, .samples = 3, .warmup = 1});
  return c.bytes / time.median_us / 1e3;
}

/// The best of plain copies, in gigabytes per second, timed as the cases are: the instruments', our cast without a cast, and for a
/// kernel that reads twice what it writes also a cast that does. Memory likes reading better than turning round.
inline double copy_bandwidth(bool reads_more) {
  constexpr std::int64_t rows = 16'384, cols = 8192;
  const BenchArray from(2, rows, cols, reads_more ? kernels::DType::f32 : kernels::DType::bf16),
      to(2, rows, cols, kernels::DType::bf16);
  const MemoryCase copy{"copy", (reads_more ? 6.0 : 4.0) * rows * cols, 2,
                        [&](int i, gpu::Stream s) { gpu::cast(from.at(i), to.at(i), s); }};
  double ours = 0;
  constexpr int rounds = 10;  // the first ones wake the chip
  for (int i = 0; i < rounds; ++i) ours = std::max(ours, gigabytes_per_second(copy));
  return std::max(ours, gpu::measure_bandwidth().copy / 1e9);
}

/// Prints the record of the first case, and in it what was found `correct` before; with --table, a line for every case on the error
/// stream.
inline int memory_bench(int argc, char** argv, const std::vector<MemoryCase>& cases,
                        bool reads_more = false, const boost::json::object& correct = {}) {
  const double copy = copy_bandwidth(reads_more);
  if (std::any_of(argv, argv + argc,
                  [](const char* a) { return std::string_view(a) == "--table"; })) {
    for (const MemoryCase& c : cases) {
      const double rate = gigabytes_per_second(c);
      std::fprintf(stderr, "%-44s %8.1f us %7.0f GB/s %5.1f %% of copy\n", c.name.c_str(),
                   c.bytes / rate / 1e3, rate, 100 * rate / copy);
    }
  }
  bench::About about{.metric = "rate",
                     .unit = "GB/s",
                     .better = "higher",
                     .extra = {{"limit", {{"name", "copy bandwidth"}, {"value", copy}}},
                               {"config", boost::json::object{{"case", cases.front().name}}}}};
  if (!correct.empty()) about.extra["correct"] = correct;
  return bench::run(argc, argv, about, [&] { return gigabytes_per_second(cases.front()); });
}

}  // namespace rose::labs
