// An exercise of the chapter "How the book tangles".

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

#include "labs/tangle/mini.h"

namespace rose::labs {
namespace {

// Mark what the root reaches, and name the rest.
void mark(const Chunks& chunks, const std::string& name, std::set<std::string>& reached) {
  const auto found = chunks.find(name);
  if (found == chunks.end() || !reached.insert(name).second) return;
  for (const std::string& line : found->second) mark(chunks, reference_in(line), reached);
}

std::vector<std::string> unused(const Chunks& chunks, const std::string& root) {
  std::set<std::string> reached;
  mark(chunks, root, reached);
  std::vector<std::string> out;
  for (const auto& [name, lines] : chunks) {
    if (!reached.contains(name)) out.push_back(name);
  }
  return out;
}

// Two chunks that use each other alone are unused.
TEST(MiniTangleUnused, TwoChunksThatUseEachOtherAloneAreUnused) {
  const Chunks chunks = {
      {"root", {"<<used>>"}}, {"used", {"x"}}, {"a", {"<<b>>"}}, {"b", {"<<a>>"}}};
  EXPECT_EQ(unused(chunks, "root"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(unused(chunks, "a"), (std::vector<std::string>{"root", "used"}));
}

}  // namespace
}  // namespace rose::labs
