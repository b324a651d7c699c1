// Tests of the chapter "Pulling a model".

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

#include "rose/app/rose_pull.h"
#include "rose/core/error.h"
#include "rose/serve/hub.h"

namespace rose::serve {
namespace {

// Names that climb, hashes that are none.
TEST(Hub, ReadsAListingOrRefusesIt) {
  const std::string commit(40, 'a'), blob(40, 'b'), sha(64, 'c');
  const auto listing = [&](const std::string& name, const std::string& id, const char* size) {
    return R"({"sha": ")" + commit + R"(", "siblings": [{"rfilename": ")" + name +
           R"(", "size": )" + size + R"(, "blobId": ")" + id + R"("}, {"rfilename": "m.safetensors",
           "size": 7, "lfs": {"sha256": ")" +
           sha + R"("}}]})";
  };
  const HubListing good = parse_listing(listing("a b/config.json", blob, "2"));
  EXPECT_EQ(good.files[0].hash, blob);
  EXPECT_TRUE(good.files[1].large);
  for (const char* name : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "a\\\\b", ".",
                           "a/.", "a\\u0000b", "a\\nb"})
    EXPECT_THROW(parse_listing(listing(name, blob, "2")), core::Error) << name;
  for (const char* id : {"", "../../x", "b", "G000000000000000000000000000000000000000"})
    EXPECT_THROW(parse_listing(listing("x", id, "2")), core::Error) << id;
  for (const char* size : {"-1", "1.5", "null", "\"2\""})
    EXPECT_THROW(parse_listing(listing("x", blob, size)), core::Error) << size;
  for (const char* text : {"", "[]", "{}", R"({"sha": "main", "siblings": []})"})
    EXPECT_THROW(parse_listing(text), core::Error) << text;
}

TEST(Hub, ChoosesWhatAModelNeeds) {
  HubListing listing;
  for (const char* name : {"config.json", "model.safetensors", "pytorch_model.bin", "README.md",
                           "onnx/model.safetensors", "m-q4.gguf"})
    listing.files.push_back({.name = name, .hash = "x", .large = true});
  EXPECT_EQ(choose_files(listing, {}).size(), 2U);
  EXPECT_EQ(choose_files(listing, {"*.gguf"}).at(0).name, "m-q4.gguf");
  EXPECT_EQ(choose_files(listing, {"*model*"}).size(), 3U);
  EXPECT_THROW(choose_files(listing, {"*.none"}), core::Error);
  EXPECT_THROW(choose_files(listing, {std::string(100, '*') + "x"}), core::Error);
  listing.files.erase(listing.files.begin() + 1);
  try {
    choose_files(listing, {});
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_NE(error.hint().find("m-q4.gguf"), std::string::npos);
  }
}

}  // namespace
}  // namespace rose::serve
