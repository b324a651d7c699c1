// Turn samples into a median and a spread.

#include "rose/kernels/gpu/instruments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rose::kernels::gpu {

// Say what the chip was doing.
std::string describe(const Clocks& clocks) {
  std::string words;
  const auto add = [&](const char* form, auto value) {
    if (value > 0) words += (words.empty() ? "" : ", ") + fmt::format(fmt::runtime(form), value);
  };
  add("SM {} MHz", clocks.sm_mhz);
  add("memory {} MHz", clocks.memory_mhz);
  add("{:.0f} W", clocks.watts);
  add("{} degrees", clocks.celsius);
  return words.empty() ? "clocks and power are not readable" : words;
}

Timing summarise(std::vector<double> samples_us) {
  Timing timing{.samples_us = samples_us};
  if (samples_us.empty()) return timing;
  std::sort(samples_us.begin(), samples_us.end());
  const double last = static_cast<double>(samples_us.size() - 1);
  const auto at = [&](double rank) { return samples_us[static_cast<std::size_t>(rank)]; };
  timing.median_us = (at(std::floor(last / 2)) + at(std::ceil(last / 2))) / 2;
  timing.p10_us = at(std::floor(0.1 * last));
  timing.p90_us = at(std::ceil(0.9 * last));
  return timing;
}

int copies_past_l2(double bytes_per_copy, double l2_bytes) {
  constexpr double fewest = 2, most = 64, times = 4;
  return static_cast<int>(
      std::clamp(std::ceil(times * l2_bytes / std::max(bytes_per_copy, 1.0)), fewest, most));
}

#ifndef ROSE_HAVE_CUDA
std::vector<Timing> time_interleaved(std::span<const Launch>, const TimingOptions&) {
  no_cuda("timing");
}
DeviceInfo device_info() {
  no_cuda("naming the device");
}
Clocks read_clocks() {
  return {};
}
Bandwidth measure_bandwidth() {
  no_cuda("measuring the bandwidth");
}
void fill_random(const Buffer&, DType, std::uint32_t) {
  no_cuda("filling memory");
}
#endif

Timing time_launches(const Launch& side, const TimingOptions& options) {
  return time_interleaved(std::span(&side, 1), options).front();
}

}  // namespace rose::kernels::gpu
