// Tests of the chapter "Weights on disk".

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

#include "rose/core/error.h"
#include "rose/model/files/gguf.h"
#include "rose/model/files/safetensors.h"
#include "rose/model/files/stored_tensor.h"

namespace rose::model {
namespace {

// Lay a GGUF file out by hand.
struct Raw {
  std::string bytes;
  template <class T>
  Raw& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Raw& text(std::string_view text) {
    put<std::uint64_t>(text.size());
    bytes += text;
    return *this;
  }
  Raw& head(std::uint64_t tensors, std::uint64_t values, std::uint32_t version = 3) {
    bytes += "GGUF";
    return put<std::uint32_t>(version).put(tensors).put(values);
  }
  Raw& tensor(std::string_view name, std::vector<std::uint64_t> extents, std::uint32_t type,
              std::uint64_t offset) {
    text(name).put<std::uint32_t>(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) put(extent);
    return put(type).put(offset);
  }
  Raw& data(std::size_t size) {
    bytes.resize((bytes.size() + 31) / 32 * 32);
    bytes.append(size, '\1');
    return *this;
  }
};

std::span<const std::byte> span_of(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

template <class File>
std::string refusal(const std::string& bytes) {  // of a parser: its one line, or "" when accepted
  try {
    File::parse(span_of(bytes), "file");
  } catch (const core::Error& error) {
    EXPECT_NE(error.code(), core::Code::internal) << error.what();
    return error.what();
  }
  return "";
}

// A file laid out by hand means what it says.
TEST(Gguf, ReadsAFileLaidOutByHand) {
  Raw raw;
  raw.head(1, 1).text("answer").put<std::uint32_t>(4).put<std::uint32_t>(42);
  raw.tensor("x", {2}, 0, 0);
  EXPECT_EQ(raw.bytes.size(), 24 + (8 + 6 + 4 + 4) + (8 + 1 + 4 + 8 + 4 + 8));  // 79
  raw.bytes.resize(96);  // data begins at the next multiple of 32
  raw.put(1.5f).put(-2.0f);
  const GgufFile file = GgufFile::parse(span_of(raw.bytes), "by hand");
  EXPECT_EQ(file.integer("answer"), 42);
  const StoredTensor* x = file.find("x");
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->offset, 96u);
  EXPECT_EQ(x->shape, std::vector<std::int64_t>{2});
  float values[2];
  std::memcpy(values, x->bytes.data(), sizeof values);
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2.0f);
}

// Every kind of value survives writing and reading.
std::string sample_gguf() {
  GgufMetadata metadata;
  metadata.emplace_back("u8", std::uint8_t{200});
  metadata.emplace_back("i8", std::int8_t{-7});
  metadata.emplace_back("u16", std::uint16_t{60000});
  metadata.emplace_back("i16", std::int16_t{-30000});
  metadata.emplace_back("u32", std::uint32_t{4000000000});
  metadata.emplace_back("i32", std::int32_t{-5});
  metadata.emplace_back("f32", 0.1f);
  metadata.emplace_back("bool", true);
  metadata.emplace_back("string", std::string("naïve\0text", 11));
  metadata.emplace_back("array", GgufArray{std::vector<std::string>{"a", "", "ccc"}});
  metadata.emplace_back("nested", GgufArray{std::vector<GgufArray>{{std::vector<float>{1, 2}},
                                                                   {std::vector<bool>{true}}}});
  metadata.emplace_back("u64", std::uint64_t{1} << 63);
  metadata.emplace_back("i64", std::numeric_limits<std::int64_t>::min());
  metadata.emplace_back("f64", 0.1);
  const std::vector<PlannedTensor> tensors = {{"matrix", kernels::DType::q4_1, {3, 64}},
                                              {"vector", kernels::DType::f32, {5}}};
  std::string bytes = gguf_header(metadata, tensors);
  bytes.append(gguf_padded(3 * 40), 'm');
  bytes.append(gguf_padded(20), 'v');
  return bytes;
}

TEST(Gguf, EveryKindOfValueSurvives) {
  const std::string bytes = sample_gguf();
  const GgufFile file = GgufFile::parse(span_of(bytes), "sample");
  EXPECT_EQ(file.metadata().size(), 14u);
  EXPECT_EQ(file.integer("u8"), 200);
  EXPECT_EQ(file.integer("i16"), -30000);
  EXPECT_EQ(file.integer("u32"), 4000000000);
  EXPECT_EQ(file.number("f32"), double{0.1f});
  EXPECT_EQ(file.number("i8"), -7.0);
  EXPECT_EQ(file.boolean("bool"), true);
  EXPECT_EQ(file.text("string"), std::string_view("naïve\0text", 11));
  EXPECT_EQ(*file.texts("array"), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_THROW(file.integer("u64"), core::Error);  // does not fit
  EXPECT_THROW(file.text("f64"), core::Error);
  EXPECT_EQ(file.find("matrix")->shape, (std::vector<std::int64_t>{3, 64}));
  EXPECT_EQ(file.find("vector")->bytes[0], std::byte{'v'});
  EXPECT_EQ(gguf_header(file.metadata(),
                        std::vector<PlannedTensor>{{"matrix", kernels::DType::q4_1, {3, 64}},
                                                   {"vector", kernels::DType::f32, {5}}}),
            bytes.substr(0, bytes.size() - 160));
}

// A safetensors file survives writing and reading.
std::string sample_safetensors() {
  const std::vector<PlannedTensor> tensors = {{"a", kernels::DType::f32, {2, 3}},
                                              {"empty", kernels::DType::f32, {0, 7}},
                                              {"b", kernels::DType::bf16, {4}},
                                              {"scalar", kernels::DType::u8, {}}};
  return safetensors_header(tensors, {{"format", "pt"}}) + std::string(24 + 8 + 1, 'x');
}

TEST(Safetensors, SurvivesWritingAndReading) {
  const std::string bytes = sample_safetensors();
  const SafetensorsFile file = SafetensorsFile::parse(span_of(bytes), "sample");
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("a")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.find("a")->offset % 8, 0u);
  EXPECT_EQ(file.find("b")->bytes.size(), 8u);
  EXPECT_EQ(file.find("scalar")->bytes.size(), 1u);
  EXPECT_EQ(file.find("missing"), nullptr);
}

// No prefix is accepted, no changed byte does harm.
template <class File>
void torment(const std::string& bytes, std::size_t padding) {
  for (std::size_t size = 0; size + padding < bytes.size(); ++size) {
    const std::string cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(refusal<File>(cut), "") << "cut after " << size;
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff, bytes[at] ^ 1}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      refusal<File>(changed);
    }
  }
}

TEST(Hostile, CutAndChangedFilesAreRefusedOrHarmless) {
  torment<GgufFile>(sample_gguf(), 12);  // the last tensor's padding may be missing
  torment<SafetensorsFile>(sample_safetensors(), 0);
}

// Lies in GGUF, and the answers to them.
TEST(Hostile, Gguf) {
  const auto expect = [](const Raw& raw, const std::string& answer) {
    EXPECT_THAT(refusal<GgufFile>(raw.bytes), testing::HasSubstr(answer));
  };
  expect(Raw{"GGML"}, "no GGUF file");
  expect(Raw{"version https://git-lfs.github.com/spec/v1\n"}, "Git LFS pointer");
  expect(Raw{"<!DOCTYPE html>"}, "web page");
  expect(Raw{}, "empty");
  expect(Raw{}.head(0, 0, 1), "version 1 is not supported");
  expect(Raw{}.head(0, 0, 0x03000000), "big-endian");
  expect(Raw{}.head(std::uint64_t{1} << 60, 0), "tensor descriptions at byte 24 needs");
  expect(Raw{}.head(0, std::uint64_t{1} << 63), "metadata at byte 24 needs");
  const std::string key(20, 'k');
  const auto value = [&](std::uint32_t type) { return Raw{}.head(0, 1).text(key).put(type); };
  expect(value(13).put(std::uint64_t{0}), "unknown type 13");
  expect(value(8).put(~std::uint64_t{0}), "needs 18446744073709551615 × 1 bytes");
  expect(value(9).put(std::uint32_t{0}).put(std::uint64_t{1} << 62), "× 1 bytes, 0 are left");
  expect(value(9).put(std::uint32_t{8}).put(std::uint64_t{1} << 61), "× 8 bytes, 0 are left");
  expect(value(9).put(std::uint32_t{99}).put(std::uint64_t{1}), "unknown type 99");
  Raw deep = value(9);
  for (int i = 0; i < 100; ++i) deep.put(std::uint32_t{9}).put(std::uint64_t{1});
  expect(deep, "nests arrays too deeply");
  Raw twice = Raw{}.head(0, 2);
  twice.text("k").put(std::uint32_t{7}).put(char{1}).text("k").put(std::uint32_t{7}).put(char{0});
  expect(twice, "names 'k' twice");
}

// Lies about tensors in GGUF.
TEST(Hostile, GgufTensors) {
  const auto expect = [](const Raw& raw, const std::string& answer) {
    EXPECT_THAT(refusal<GgufFile>(raw.bytes), testing::HasSubstr(answer));
  };
  const auto one = [](std::vector<std::uint64_t> extents, std::uint32_t type,
                      std::uint64_t offset) {
    return Raw{}.head(1, 0).tensor("w", std::move(extents), type, offset).data(64);
  };
  EXPECT_EQ(refusal<GgufFile>(one({16}, 0, 0).bytes), "");
  expect(one({17}, 0, 0), "needs 17 × 4 bytes");
  expect(one({16}, 0, 32), "needs 16 × 4 bytes");
  expect(one({1}, 0, 4), "offset 4, which is not aligned to 32");
  expect(one({1}, 0, ~std::uint64_t{31}), "needs 1 × 4 bytes at byte");
  expect(one({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  expect(one({~std::uint64_t{0}}, 0, 0), "extent of 18446744073709551615");
  std::uint64_t bytes =
      4;  // what a reader computes that multiplies in 64 bits: a tensor of no bytes
  for (int i = 0; i < 4; ++i) bytes *= 1 << 16;
  EXPECT_EQ(bytes, 0u);
  expect(one({1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, 0), "more elements than can be counted");
  expect(one({std::uint64_t{1} << 40, std::uint64_t{1} << 40, 0}, 0, 0), "more elements");
  expect(one({33}, 3, 0), "rows of 33 in Q4_1");
  expect(one({16}, 99, 0), "type 99, which GGUF does not define");
  expect(one({256}, 23, 0), "stored as IQ4_XS, which is not supported yet");
  Raw overlap = Raw{}.head(2, 0).tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).data(64);
  expect(overlap, "tensors 'a' and 'b' overlap");
  expect(Raw{}.head(2, 0).tensor("a", {1}, 0, 0).tensor("a", {1}, 0, 32).data(64),
         "two tensors 'a'");
  expect(Raw{}.head(1, 0).tensor("\x1b[2J\n", {17}, 0, 0).data(64), "'\\x1b[2J\\x0a'");
  for (const std::uint32_t alignment : {0u, 3u, 0x80000000u}) {
    Raw raw = Raw{}.head(0, 1).text("general.alignment").put(std::uint32_t{4}).put(alignment);
    expect(raw, "no power of two");
  }
}

// Lies in safetensors, and the answers to them.
TEST(Hostile, Safetensors) {
  const auto expect = [](std::string header, std::size_t data, const std::string& answer,
                         std::uint64_t lie = 0) {
    Raw raw;
    raw.put<std::uint64_t>(lie != 0 ? lie : header.size());
    raw.bytes += header + std::string(data, 'd');
    EXPECT_THAT(refusal<SafetensorsFile>(raw.bytes), testing::HasSubstr(answer)) << header;
  };
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  expect(good, 8, "the header claims 18446744073709551615 bytes", ~std::uint64_t{0});
  expect(good, 8, "the header claims 200000000 bytes", 200'000'000);
  expect("[1,2]", 0, "no JSON object");
  expect("{\"w\":", 0, "not valid JSON");
  expect(good, 7, "ends at byte");
  expect(good, 9, "last 1 bytes belong to no tensor");
  const auto entry = [](std::string dtype, std::string shape, std::string offsets) {
    return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  expect(entry("F32", "[2]", "[8,0]"), 8, "must be a begin and an end");
  expect(entry("F32", "[2]", "[0,8,9]"), 8, "must be a begin and an end");
  expect(entry("F32", "[2]", "[-8,0]"), 8, "non-negative integers");
  expect(entry("F32", "[2.5]", "[0,8]"), 8, "non-negative integers");
  expect(entry("F32", "[3]", "[0,8]"), 8, "does not take the 8 bytes");
  expect(entry("F32", "[4294967296,4294967296]", "[0,8]"), 8, "does not take the 8 bytes");
  expect(entry("F32", "[4611686018427387904]", "[0,0]"), 0, "does not take the 0 bytes");
  expect(entry("Q4", "[2]", "[0,8]"), 8, "unknown element type 'Q4'");
  expect(R"({"w":7})", 0, "the entry is no object");
  const std::string a = R"("a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  expect("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8,
         "'a' and 'b' overlap");
  expect("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10,
         "before tensor 'b'");
  expect("{" + a + "," + a + "}", 8, "names 'a' twice");
  expect("{\"w\":" + std::string(200, '['), 0, "not valid JSON");
}

// An index cannot point out of its folder.
TEST(Hostile, IndexNamesStayInTheFolder) {
  const auto index = [](const std::string& file) { return R"({"weight_map":{"w":)" + file + "}}"; };
  EXPECT_EQ(parse_safetensors_index(index(R"("a.safetensors")"), "i").files.size(), 1u);
  for (const char* file : {R"("../a.safetensors")", R"("/etc/a.safetensors")", R"("a.bin")", "7",
                           R"("b\\a.safetensors")", R"("a\u0000.safetensors")"}) {
    EXPECT_THROW(parse_safetensors_index(index(file), "i"), core::Error) << file;
  }
}

}  // namespace
}  // namespace rose::model
