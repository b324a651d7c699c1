// Time kernels, name the machine, measure its ceilings.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/roofline.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// Microseconds for one launch.
struct Timing {
  double median_us = 0, p10_us = 0, p90_us = 0;
  std::vector<double> samples_us;  ///< in the order they were taken
};

/// Median and tenths of the samples; between two ranks, the lower for p10 and the upper for p90.
Timing summarise(std::vector<double> samples_us);

/// Enqueues one launch on copy number `copy` of the inputs.
using Launch = std::function<void(int copy, Stream stream)>;

struct TimingOptions {
  int copies = 1;    ///< input copies to rotate through; see copies_past_l2
  int rounds = 1;    ///< how often a sample goes through all copies
  int samples = 20;  ///< kept
  int warmup = 3;    ///< not kept
};

/// Times every side, interleaved: sample by sample, the order reversed every other time. What `sides` enqueue is captured in
/// graphs, so they must not wait for the device nor allocate. Throws core::Error.
std::vector<Timing> time_interleaved(std::span<const Launch> sides, const TimingOptions& options);
Timing time_launches(const Launch& side, const TimingOptions& options);

/// How many copies of inputs and outputs of this size together exceed the L2 four times; at least 2, at most 64.
int copies_past_l2(double bytes_per_copy, double l2_bytes);

struct DeviceInfo {
  std::string name;
  int capability = 0;  ///< what running code may use: 90 for Hopper, less in code for less
  int multiprocessors = 0;
  double l2_bytes = 0, memory_bytes = 0;
  int driver = 0, runtime = 0;  ///< CUDA versions, 13000 for 13.0
};
DeviceInfo device_info();

/// Read through the driver's management library; all zero where that does not answer.
struct Clocks {
  int sm_mhz = 0, memory_mhz = 0, celsius = 0;
  double watts = 0;
};
Clocks read_clocks();
/// "SM 1980 MHz, memory 3201 MHz, 640 W, 41 degrees", as far as it was readable.
std::string describe(const Clocks& clocks);

/// Bytes per second that plain kernels reach on buffers far larger than the L2.
struct Bandwidth {
  double read = 0, copy = 0, write = 0;  ///< a copy counts what it reads and what it writes
};
Bandwidth measure_bandwidth();

/// Fills with uniform random numbers in [-1, 1): nothing is timed on zeros. bf16, f16 or f32.
void fill_random(const Buffer& buffer, DType dtype, std::uint32_t seed);

}  // namespace rose::kernels::gpu
