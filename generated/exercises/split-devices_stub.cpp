// An exercise of the chapter "Prefill and decode apart".

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

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/kv_transfer.h"
#include "rose/model/weights.h"
#include "rose/serve/handover.h"
#include "rose/serve/prefill_messages.h"
#include "rose/serve/prefill_server.h"
#include "rose/serve/split_backend.h"

namespace rose {
namespace {

// Divide the devices.
struct Split {
  int readers = 1;
  double lost = 0.0;  ///< of what all together would bear
};
Split split_devices(int, double, double) {
  return {};
}

// The chapter's numbers, and less loss with more devices.
TEST(SplitDevices, LosesLessWithMoreOfThem) {
  const double read = 4096 / 200'000.0, write = 256 / 20'000.0;
  EXPECT_EQ(split_devices(5, read, write).readers, 3);
  EXPECT_NEAR(split_devices(2, read, write).lost, 0.1875, 1e-4);
  EXPECT_NEAR(split_devices(5, read, write).lost, 0.0247, 1e-3);
  for (int n = 2; n < 200; ++n) {
    const Split s = split_devices(n, read, write);
    EXPECT_GE(s.lost, -1e-12);
    EXPECT_LE(s.lost, 1.0 / n * (read + write) / std::min(read, write))
        << "rounding, by one device";
  }
}

}  // namespace
}  // namespace rose
