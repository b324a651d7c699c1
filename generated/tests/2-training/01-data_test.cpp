// Tests of the chapter "Data, from shards to batches".

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
#include <unistd.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/core/rng.h"
#include "rose/trainer/data/loader.h"
#include "rose/trainer/data/micro_batch.h"
#include "rose/trainer/data/packing.h"
#include "rose/trainer/data/prefetch.h"
#include "rose/trainer/data/shard.h"
#include "rose/trainer/data/stream.h"

namespace rose::trainer {
namespace {

// A corpus whose tokens say where they come from.
namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  explicit Folder(std::string_view name)
      : path(fs::temp_directory_path() / fmt::format("rose-data-{}-{}", name, getpid())) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
};

constexpr std::int32_t separator = 0, vocabulary = 50000;

// Document d has lengths[d] tokens: first, first + 1, ... with `first` growing over documents.
std::int32_t write_shard(const fs::path& path, std::span<const std::int64_t> lengths,
                         std::int32_t first = 1, std::int32_t vocab_size = vocabulary) {
  ShardWriter writer(path, {.vocab_size = vocab_size, .separator = separator, .tokenizer = 7});
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
    std::iota(tokens.begin(), tokens.end(), first);
    first += static_cast<std::int32_t>(length);
    writer.append(tokens, core::xxh3(std::as_bytes(std::span(tokens))), 3 * length);
  }
  writer.finish();
  return first;
}

core::Code code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const core::Error& error) {
    return error.code();
  }
  return core::Code::internal;
}

template <class T>
void write_raw(const fs::path& path, std::span<const std::uint32_t> header,
               std::span<const T> tokens) {
  std::string bytes(reinterpret_cast<const char*>(header.data()), header.size_bytes());
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  core::write_file_atomic(path, bytes);
}

// Three kinds of file hold the same documents.
TEST(Shard, OursHoldsWhatWasWritten) {
  const Folder folder("ours");
  for (const std::int32_t vocab : {vocabulary, 100'000}) {
    const std::vector<std::int64_t> lengths = {3, 1, 5};
    write_shard(folder.path / "train-00000.bin", lengths, 1, vocab);
    const Shard shard = Shard::open(folder.path / "train-00000.bin", {.vocab_size = vocab});
    EXPECT_EQ(shard.info().token_bytes, vocab > 65536 ? 4 : 2);
    EXPECT_EQ(shard.info().tokens, 12);
    EXPECT_EQ(shard.info().text_bytes, 27);
    EXPECT_EQ(shard.info().separator, separator);
    ASSERT_EQ(shard.documents(), 3);
    std::vector<std::int32_t> tokens(5);
    const DocumentRange range = shard.document(2);
    ASSERT_EQ(range.size(), 5);
    shard.copy(range.begin, tokens);
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{5, 6, 7, 8, 9}));
    EXPECT_EQ(shard.document_hash(2), core::xxh3(std::as_bytes(std::span(tokens))));
    shard.verify();
    // llm.c's check of the size, word for word what its reader computes
    EXPECT_EQ(fs::file_size(folder.path / "train-00000.bin"),
              1024u + 12u * static_cast<unsigned>(shard.info().token_bytes));
  }
}

TEST(Shard, OthersFilesAreRead) {
  const Folder folder("others");
  const std::vector<std::uint16_t> llmc = {0, 1, 2, 3, 0, 0, 4, 0, 5, 6};
  std::vector<std::uint32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = 10;
  write_raw<std::uint16_t>(folder.path / "a.bin", header, llmc);
  const std::vector<std::uint32_t> wide(llmc.begin(), llmc.end());
  header[0] = 20240801, header[1] = 7;
  write_raw<std::uint32_t>(folder.path / "b.bin", header, wide);
  const std::vector<std::uint16_t> nano = {1, 2, 3, 0, 4, 0, 5, 6, 0};
  write_raw<std::uint16_t>(folder.path / "c.bin", {}, nano);
  for (const char* name : {"a.bin", "b.bin", "c.bin"}) {
    const Shard shard = Shard::open(folder.path / name, {.vocab_size = 7, .separator = 0});
    ASSERT_EQ(shard.documents(), 3) << name;
    std::vector<std::int64_t> sizes;
    for (std::int64_t d = 0; d < 3; ++d) sizes.push_back(shard.document(d).size());
    EXPECT_EQ(sizes, (std::vector<std::int64_t>{3, 1, 2})) << name;
    EXPECT_EQ(Shard::open(folder.path / name).documents(), 1);
  }
}

// Damage is found before it is trained on.
TEST(Shard, DamageIsFound) {
  const Folder folder("damage");
  const fs::path path = folder.path / "train-0.bin";
  const std::vector<std::int64_t> lengths = {10, 20};
  const auto fresh = [&] { write_shard(path, lengths); };
  fresh();
  EXPECT_EQ(code_of([&] { Shard::open(path, {.vocab_size = 49999}); }), core::Code::out_of_range);
  fs::resize_file(path, fs::file_size(path) - 2);
  EXPECT_EQ(code_of([&] { Shard::open(path); }), core::Code::corrupt);
  fresh();
  std::string bytes = core::read_file(path);
  bytes[1024 + 7] = static_cast<char>(0xff);  // token 3 becomes 65,283
  core::write_file_atomic(path, bytes);
  const Shard flipped = Shard::open(path, {.vocab_size = vocabulary});
  EXPECT_EQ(code_of([&] { flipped.verify(); }), core::Code::corrupt);
  std::vector<std::int32_t> out(8);
  try {
    flipped.copy(0, out);
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::Code::out_of_range);
    EXPECT_EQ(error.message(), "token 65283 at position 3 is beyond the vocabulary of 50000");
  }
  fresh();
  const fs::path index = folder.path / "train-0.idx";
  std::string ends = core::read_file(index);
  ++ends[16];
  core::write_file_atomic(index, ends);
  EXPECT_EQ(code_of([&] { Shard::open(path); }), core::Code::corrupt);
  fs::remove(index);
  EXPECT_EQ(code_of([&] { Shard::open(path); }), core::Code::not_found);
  EXPECT_EQ(code_of([&] { shard_files(folder.path, "val"); }), core::Code::not_found);
}

// The order is uniform, a shuffle buffer's is not.
double correlation(std::span<const double> y) {  // with 0, 1, 2, ...
  const auto n = static_cast<double>(y.size());
  const double mean = (n - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double x = static_cast<double>(i) - mean;
    xy += x * (y[i] - mean), xx += x * x, yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

TEST(Stream, TheOrderIsUniformAndAShuffleBuffersIsNot) {
  const Folder folder("shuffle");
  constexpr std::int64_t n = 4000;
  const std::vector<std::int64_t> lengths(n, 1);
  write_shard(folder.path / "train-0.bin", std::span(lengths).first(n / 2));
  write_shard(folder.path / "train-1.bin", std::span(lengths).last(n / 2), 1 + n / 2);
  DocumentStream stream({{"all", shard_files(folder.path), 1.0}}, {.vocab_size = vocabulary}, 11,
                        true);
  double worst = 0;
  std::int64_t kept_neighbours = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    std::vector<double> order;
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<std::int32_t> input(2), target(2);
      stream.next().read(0, input, target);
      order.push_back(target[0] - 1);
      if (i > 0) kept_neighbours += order[order.size() - 2] + 1 == order.back();
    }
    worst = std::max(worst, std::abs(correlation(order)));
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<double>(i));
  }
  EXPECT_LT(worst, 4 / std::sqrt(static_cast<double>(n)));  // standard deviation 1 / sqrt(n)
  EXPECT_LT(kept_neighbours, 8 + 4 * 3);                    // Poisson, mean 1 per epoch

  constexpr std::size_t buffered = n / 10;
  std::vector<double> buffer(buffered), order;
  std::iota(buffer.begin(), buffer.end(), 0.0);
  core::Rng rng(3);
  for (std::int64_t i = buffered; i < n; ++i) {
    double& chosen = buffer[rng.below(buffered)];
    order.push_back(chosen);
    chosen = static_cast<double>(i);
  }
  core::shuffle(std::span(buffer), rng);
  order.insert(order.end(), buffer.begin(), buffer.end());
  const double expected = 1 / std::sqrt(1 + 12.0 * buffered * buffered / (1.0 * n * n));
  labs::write_value("data-shuffle-test", "buffer-correlation", expected);
  EXPECT_NEAR(correlation(order), expected, 0.01);
}

// Every source keeps its share at every moment.
TEST(Stream, EverySourceKeepsItsShareAtEveryMoment) {
  const Folder folder("mixture");
  core::Rng rng(5);
  std::vector<DataSource> sources;
  const std::vector<double> weights = {0.6, 0.3, 0.1};
  for (std::size_t s = 0; s < 3; ++s) {
    std::vector<std::int64_t> lengths(50 * (s + 1));
    for (auto& length : lengths) length = 1 + rng.below(99);
    const fs::path path = folder.path / fmt::format("{}.bin", s);
    write_shard(path, lengths);
    sources.push_back({std::to_string(s), {path}, 10 * weights[s]});
  }
  DocumentStream stream(sources, {}, 1, true);
  constexpr double longest = 100;
  for (int i = 0; i < 5000; ++i) {
    stream.next();
    double total = 0;
    for (const auto& place : stream.places()) total += static_cast<double>(place.cells);
    for (std::size_t s = 0; s < 3; ++s) {
      const double gap = static_cast<double>(stream.places()[s].cells) - weights[s] * total;
      ASSERT_LE(gap, longest);
      ASSERT_GE(gap, -weights[s] * 2 * longest);
    }
  }
  EXPECT_GT(stream.places()[0].epoch, stream.places()[2].epoch);
  sources[1].weight = 0;
  EXPECT_EQ(code_of([&] { DocumentStream(sources, {}, 1, true); }), core::Code::invalid_argument);
  EXPECT_EQ(code_of([&] { DocumentStream({}, {}, 1, true); }), core::Code::invalid_argument);
}

// Drawing with replacement leaves a third unread.
TEST(Stream, DrawingWithReplacementLeavesAThirdUnread) {
  constexpr std::uint32_t n = 20'000;
  std::vector<int> drawn(n);
  core::Rng rng(1);
  for (std::uint32_t i = 0; i < n; ++i) ++drawn[rng.below(n)];
  const auto unread = static_cast<double>(std::count(drawn.begin(), drawn.end(), 0));
  EXPECT_NEAR(unread / n, std::exp(-1.0), 0.01);
  EXPECT_GE(*std::max_element(drawn.begin(), drawn.end()), 5);
  labs::write_value("data-unseen-test", "unseen-percent", 100 * std::exp(-1.0));
}

// What each packing wastes, and what the formulas say.
TEST(Packing, ByHand) {
  const std::vector<std::int64_t> lengths = {3, 5, 2, 6, 4};
  EXPECT_EQ(pack_best_fit(lengths, 8),
            (std::vector<std::vector<std::int64_t>>{{3, 2}, {1, 0}, {4}}));
  EXPECT_TRUE(pack_best_fit({}, 8).empty());
  EXPECT_THROW(pack_best_fit(lengths, 5), core::Error);
}

TEST(Packing, WhatEachPackingWastes) {
  constexpr double mean = 500, row = 2048;
  constexpr std::size_t n = 40'000;
  core::Rng rng(1);
  std::vector<std::int64_t> lengths(n), pieces;
  for (auto& length : lengths)
    length = 1 + static_cast<std::int64_t>(-mean * std::log(1 - rng.uniform64()));
  double padded = 0, total = 0, cut = 0, expected_cut = 0;
  for (const std::int64_t length : lengths) {
    const auto l = static_cast<double>(length);
    padded += std::min(l, row) / row;
    cut += std::floor(total / row) != std::floor((total + l - 1) / row);
    expected_cut += std::min(1.0, (l - 1) / row);
    total += l;
    for (std::int64_t at = 0; at < length; at += 2048)
      pieces.push_back(std::min<std::int64_t>(2048, length - at));
  }
  const double formula = mean / row * (1 - std::exp(-row / mean));
  EXPECT_NEAR(padded / n, formula, 0.005);
  EXPECT_NEAR(cut / n, expected_cut / n, 0.01);
  labs::write_value("data-packing-test", "padded-percent", 100 * formula);
  labs::write_value("data-packing-test", "cut-percent", 100 * expected_cut / n);
  // best fit, in windows of 1,024 pieces
  std::size_t rows = 0;
  for (std::size_t at = 0; at < pieces.size(); at += 1024) {
    const auto window =
        std::span(pieces).subspan(at, std::min<std::size_t>(1024, pieces.size() - at));
    rows += pack_best_fit(window, 2048).size();
  }
  const double filled = total / (static_cast<double>(rows) * row);
  labs::write_value("data-packing-test", "best-fit-percent", 100 * filled);
  EXPECT_GT(filled, 0.99);
}

// Every token is predicted once per epoch.
LoaderOptions options_for(const fs::path& folder, Packing packing = Packing::concatenate) {
  return {.sources = {{"all", shard_files(folder), 1.0}},
          .packing = packing,
          .window = 16,
          .vocab_size = vocabulary,
          .separator = separator};
}

// Documents of 1 to 40 tokens: some shorter than a row of 16, some longer.
void write_corpus(const fs::path& folder) {
  core::Rng rng(9);
  std::vector<std::int64_t> lengths(96);
  for (auto& length : lengths) length = 1 + rng.below(40);
  const std::int32_t first = write_shard(folder / "train-0.bin", std::span(lengths).first(60));
  write_shard(folder / "train-1.bin", std::span(lengths).last(36), first);
}

TEST(Loader, EveryTokenIsPredictedOncePerEpoch) {
  const Folder folder("once");
  write_corpus(folder.path);
  for (const Packing packing : {Packing::concatenate, Packing::best_fit}) {
    Loader loader(options_for(folder.path, packing));
    const std::int64_t cells = loader.cells(), tokens = cells - loader.documents();
    std::map<std::int32_t, int> predicted;
    std::int64_t seen = 0, padding = 0;
    MicroBatchBuffer batch;
    while (seen < cells) {
      loader.next(1, 16, batch);
      ASSERT_EQ(batch.ids.size(), 16u);
      ASSERT_EQ(batch.row_offsets.back(), 16);
      for (std::size_t s = 0; s + 1 < batch.row_offsets.size(); ++s) {
        const auto begin = static_cast<std::size_t>(batch.row_offsets[s]);
        const auto end = static_cast<std::size_t>(batch.row_offsets[s + 1]);
        for (std::size_t i = begin; i < end && seen < cells; ++i) {
          ASSERT_EQ(batch.positions[i], static_cast<std::int32_t>(i - begin));
          if (batch.targets[i] < 0) {
            ++padding;
            continue;
          }
          ++seen;
          ++predicted[batch.targets[i]];
          if (i > begin) {
            ASSERT_EQ(batch.ids[i], batch.targets[i - 1]);
          }
          // inside a document tokens count up, and a separator begins and ends it
          if (batch.ids[i] != separator && batch.targets[i] != separator) {
            ASSERT_EQ(batch.targets[i], batch.ids[i] + 1);
          }
        }
      }
    }
    EXPECT_EQ(predicted[separator], loader.documents());
    for (std::int32_t t = 1; t <= static_cast<std::int32_t>(tokens); ++t)
      ASSERT_EQ(predicted[t], 1) << t;
    if (packing == Packing::concatenate) {
      EXPECT_EQ(padding, 0);
    }
    EXPECT_LT(padding, cells / 10);
  }
}

// From every position the rest is the same.
TEST(Loader, FromEveryPositionTheRestIsTheSame) {
  const Folder folder("resume");
  write_corpus(folder.path);
  for (const Packing packing : {Packing::concatenate, Packing::best_fit}) {
    LoaderOptions options = options_for(folder.path, packing);
    options.sources = {{"a", {folder.path / "train-0.bin"}, 2.0},
                       {"b", {folder.path / "train-1.bin"}, 1.0}};
    constexpr int batches = 120;  // several epochs
    Loader loader(options);
    std::vector<std::string> positions;
    std::vector<MicroBatchBuffer> expected(batches);
    for (auto& batch : expected) {
      positions.push_back(core::json::serialize(loader.position()));
      loader.next(3, 16, batch);
    }
    EXPECT_GT(loader.epoch(), 1);
    for (std::size_t k = 0; k < batches; ++k) {
      Loader other(options);
      other.restore(core::parse_json(positions[k], "position"));
      ASSERT_EQ(core::json::serialize(other.position()), positions[k]);
      MicroBatchBuffer batch;
      for (std::size_t i = k; i < std::min<std::size_t>(k + 12, batches); ++i) {
        other.next(3, 16, batch);
        ASSERT_EQ(batch, expected[i]) << k << " " << i;
      }
    }
    Loader halves(options);
    halves.skip(30, 16);
    MicroBatchBuffer one, two;
    halves.next(1, 16, one);
    halves.next(2, 16, two);
    one.ids.insert(one.ids.end(), two.ids.begin(), two.ids.end());
    EXPECT_EQ(one.ids, expected[10].ids);
  }
}

// Positions and corpora that cannot be.
TEST(Loader, RefusesWhatCannotBe) {
  const Folder folder("refuse");
  write_corpus(folder.path);
  Loader loader(options_for(folder.path));
  MicroBatchBuffer batch;
  loader.next(2, 16, batch);
  const core::json::value position = loader.position();
  const auto rejects = [&](const char* key, core::json::value value) {
    core::json::object changed = position.as_object();
    changed[key] = std::move(value);
    return code_of([&] { Loader(options_for(folder.path)).restore(changed); });
  };
  EXPECT_EQ(rejects("data", "0123456789abcdef"), core::Code::corrupt);
  EXPECT_EQ(rejects("packing", "best_fit"), core::Code::corrupt);
  EXPECT_EQ(rejects("seed", 2), core::Code::corrupt);
  EXPECT_EQ(rejects("cell", 10'000), core::Code::corrupt);
  EXPECT_EQ(rejects("source", 1), core::Code::corrupt);
  EXPECT_EQ(rejects("places", core::json::array{}), core::Code::corrupt);
  EXPECT_EQ(rejects("places", {{0, 97, 0}}), core::Code::corrupt);
  EXPECT_EQ(rejects("places", {{0, "x", 0}}), core::Code::corrupt);
  // a corpus shorter than one window, and a token that lies about its vocabulary
  EXPECT_EQ(code_of([&] { loader.next(1, 100'000, batch); }), core::Code::invalid_argument);
  EXPECT_EQ(code_of([&] { loader.next(0, 16, batch); }), core::Code::invalid_argument);
  LoaderOptions narrow = options_for(folder.path);
  narrow.vocab_size = 100;
  EXPECT_EQ(code_of([&] { Loader{narrow}; }), core::Code::out_of_range);
}

// The thread changes nothing but the waiting.
TEST(Prefetcher, ChangesNothingButTheWaiting) {
  const Folder folder("prefetch");
  write_corpus(folder.path);
  Loader loader(options_for(folder.path));
  Prefetcher ahead(Loader(options_for(folder.path)), 4, 16, 3);
  MicroBatchBuffer expected, got;
  const std::string start = core::json::serialize(ahead.position());
  std::string middle;
  for (int i = 0; i < 40; ++i) {
    loader.next(4, 16, expected);
    ahead.next(got);
    ASSERT_EQ(got, expected);
    ASSERT_EQ(core::json::serialize(ahead.position()), core::json::serialize(loader.position()));
    if (i == 10) middle = core::json::serialize(ahead.position());
  }
  loader.restore(core::parse_json(middle, "position"));
  ahead.restore(core::parse_json(middle, "position"));
  loader.next(4, 16, expected);
  ahead.next(got);
  EXPECT_EQ(got, expected);
  // a step of five milliseconds never waits for a batch that takes microseconds
  const double before = ahead.stalled_seconds();
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ahead.next(got);
  }
  EXPECT_LT(ahead.stalled_seconds() - before, 0.02);
  Prefetcher wrong(Loader(options_for(folder.path)), 1, 1'000'000);
  EXPECT_THROW(wrong.next(got), core::Error);
  EXPECT_THROW(wrong.next(got), core::Error);  // and again, rather than waiting for ever
}

}  // namespace
}  // namespace rose::trainer
