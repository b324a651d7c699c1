// An exercise of the chapter "What the wire costs".

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

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/dist/cost.h"
#include "rose/dist/socket.h"
#include "rose/dist/tcp_wire.h"
#include "rose/dist/wire.h"
#include "rose/dist/world.h"

namespace rose::dist {
namespace {

/// Seconds for all tensors, packed in order into messages of at most `most` bytes.
double bucket_time(const WireCost& /*wire*/, std::span<const double> /*tensors*/, double /*most*/) {
  return 0;
}

TEST(BucketTime, FewerMessagesCostLess) {
  const WireCost wire{5e-6, 1 / 50e9};
  const std::vector<double> tensors(100, 4096);
  EXPECT_NEAR(bucket_time(wire, tensors, 1), 100 * wire.of(4096), 1e-12);
  EXPECT_NEAR(bucket_time(wire, tensors, 1e9), wire.of(409600), 1e-12);
  EXPECT_NEAR(bucket_time(wire, tensors, 8192), 50 * wire.of(8192), 1e-12);
  EXPECT_EQ(bucket_time(wire, {}, 10), 0.0);
  labs::write_value("bucket-time-test", "ratio",
                    bucket_time(wire, tensors, 1) / bucket_time(wire, tensors, 1e9));
}

}  // namespace
}  // namespace rose::dist
