// Tests of the chapter "Preparing a corpus".

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
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/data/contamination.h"
#include "rose/trainer/data/encode.h"
#include "rose/trainer/data/near_duplicates.h"
#include "rose/trainer/data/prepare.h"
#include "rose/trainer/data/quality.h"
#include "rose/trainer/data/shard.h"
#include "rose/trainer/data/text_source.h"

namespace rose::trainer {
namespace {

// Each rule catches its page.
std::string words(int n, std::string_view word = "reading ") {
  std::string out;
  for (int i = 0; i < n; ++i) out += word;
  return out;
}

TEST(Quality, EachRuleCatchesItsPage) {
  EXPECT_EQ(quality_problem(words(60)), nullptr);
  EXPECT_EQ(quality_problem(words(60, "прочитал ")), nullptr);  // 8 letters, 16 bytes
  EXPECT_STREQ(quality_problem(words(49)), "too few words");
  EXPECT_STREQ(quality_problem(words(100'001)), "too many words");
  EXPECT_STREQ(quality_problem(words(60, "ab ")), "words too short");
  EXPECT_STREQ(quality_problem(words(60, "abcdefghijkl ")), "words too long");
  EXPECT_STREQ(quality_problem(words(40) + words(20, "12.50 ")), "too few words with letters");
  EXPECT_STREQ(quality_problem(words(20, "the same line\n")), "repeated lines");
  std::string bullets, dots;
  for (int i = 0; i < 30; ++i) {
    bullets += fmt::format("- item number{} here\n", i);
    dots += fmt::format("this begins number{} and...\n", i);
  }
  EXPECT_STREQ(quality_problem(bullets, {.min_lettered = 0.5}), "mostly bullets");
  EXPECT_STREQ(quality_problem(dots), "lines that end in an ellipsis");
}

// Minima agree as often as sets overlap.
TEST(NearDuplicates, MinimaAgreeAsOftenAsSetsOverlap) {
  core::Rng rng(2);
  for (const double target : {0.5, 0.7, 0.8, 0.9}) {
    constexpr std::size_t pairs = 1500, total = 200;
    const auto common = static_cast<std::size_t>(target * total);
    double agreeing = 0, candidates = 0;
    for (std::size_t p = 0; p < pairs; ++p) {
      std::vector<std::uint64_t> both(total);
      for (auto& value : both) value = rng.next64();
      const std::size_t half = (total - common) / 2;  // the rest is divided between the two
      const auto a = std::span(both).first(common + half);
      std::vector<std::uint64_t> b(both.begin(),
                                   both.begin() + static_cast<std::ptrdiff_t>(common));
      b.insert(b.end(), both.begin() + static_cast<std::ptrdiff_t>(common + half), both.end());
      const MinHash x = min_hash(a), y = min_hash(b);
      for (std::size_t i = 0; i < near_hashes; ++i) agreeing += x[i] == y[i];
      NearDuplicates seen;
      EXPECT_FALSE(seen.seen(band_keys(x)));
      candidates += seen.seen(band_keys(y));
    }
    const double j = static_cast<double>(common) / total;
    const double curve = 1 - std::pow(1 - std::pow(j, near_rows), near_bands);
    EXPECT_NEAR(agreeing / (pairs * near_hashes), j, 0.01);
    EXPECT_NEAR(candidates / pairs, curve, 4 * std::sqrt(curve * (1 - curve) / pairs) + 0.002);
    labs::write_value("prepare-near-test", fmt::format("lsh-at-{:.0f}", 100 * target), curve);
  }
  labs::write_value("prepare-near-test", "sketch-deviation", std::sqrt(0.25 / near_hashes));
  labs::write_value("prepare-near-test", "collision-percent", 100 * 1e16 / std::pow(2.0, 65));
  EXPECT_EQ(word_shingles("One, TWO three!", 2), word_shingles("one two  three", 2));
  EXPECT_EQ(word_shingles("one two three", 5).size(), 1u);
  EXPECT_TRUE(word_shingles("... !", 5).empty());
}

// A copied question is found, a common phrase is not.
TEST(Contamination, ACopiedQuestionIsFound) {
  Contamination exam;
  EXPECT_TRUE(
      exam.add("A farmer has 17 sheep, and all but 9 of them run away. How many are left?"));
  EXPECT_TRUE(exam.add("Who wrote the Book of Disquiet?"));
  EXPECT_FALSE(exam.add("What is the time?"));
  EXPECT_TRUE(
      exam.found_in("... riddles: a FARMER has 17 sheep and all but 9 of them run away! ..."));
  EXPECT_TRUE(exam.found_in("Quiz: who wrote the book of disquiet? Answer below."));
  EXPECT_FALSE(exam.found_in("a farmer has 17 sheep and all but 8 of them run away today"));
  EXPECT_FALSE(exam.found_in("What is the time? Who wrote the book?"));
  EXPECT_FALSE(exam.found_in(""));
}

// Pieces encode as the whole does.
text::Tokenizer tokenizer_for(text::SplitRule rule, std::string_view sample) {
  text::BpeTrainerOptions options;
  options.vocab_size = 600;
  options.special_tokens = {"<|endoftext|>"};
  options.split = {rule};
  text::BpeTrainer trainer(options);
  trainer.feed(sample);
  return text::Tokenizer(trainer.train());
}

TEST(Encode, PiecesEncodeAsTheWholeDoes) {
  const std::string book = core::read_file("book/1-foundations/04-unicode-and-splitting.md") +
                           "x\n\n  y\r\nz \nw\n1\n2.\nA'\nb<|endoftext|>\nc";
  for (const auto rule : {text::SplitRule::gpt2, text::SplitRule::llama3, text::SplitRule::qwen2,
                          text::SplitRule::digits}) {
    const text::Tokenizer tokenizer = tokenizer_for(rule, book);
    const auto whole = tokenizer.encode(book, false);
    for (const std::size_t size : {1u, 100u, 5000u}) {
      std::vector<std::int32_t> joined;
      std::string text;
      const auto pieces = pieces_of(book, size);
      for (const auto piece : pieces) tokenizer.encode(piece, false, joined), text += piece;
      ASSERT_EQ(text, book);
      ASSERT_EQ(joined, whole);
      if (size == 100) {
        EXPECT_GT(pieces.size(), book.size() / 1000);
      }
    }
    core::ThreadPool pool(3);
    const std::vector<std::string_view> texts = {book, "", "short", book};
    const auto all = encode_all(tokenizer, texts, pool);
    EXPECT_EQ(all[0], whole);
    EXPECT_EQ(all[3], whole);
    EXPECT_TRUE(all[1].empty());
    EXPECT_EQ(std::ranges::count(all[0], 0), 0);  // the separator's spelling is text
  }
}

// A corpus with everything that can be wrong.
namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  explicit Folder(std::string_view name)
      : path(fs::temp_directory_path() / fmt::format("rose-prepare-{}-{}", name, getpid())) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
};

// 300 documents of made-up words; every tenth is an exact copy, every tenth a near one.
std::vector<std::string> made_up() {
  core::Rng rng(6);
  std::vector<std::string> texts;
  for (int d = 0; d < 300; ++d) {
    if (d % 10 == 8 || d % 10 == 9) {
      std::string copy = texts[static_cast<std::size_t>(d - 5)];
      if (d % 10 == 9) copy += " and a last word";
      texts.push_back(copy);
      continue;
    }
    std::string text;
    for (std::uint32_t w = 0; w < 150 + rng.below(100); ++w) {
      for (std::uint32_t c = 0; c < 3 + rng.below(6); ++c)
        text += static_cast<char>('a' + rng.below(26));
      text += rng.below(12) == 0 ? "\n" : " ";
    }
    texts.push_back(text);
  }
  return texts;
}

void write_inputs(const fs::path& folder, const std::vector<std::string>& texts) {
  fs::create_directories(folder / "more");
  std::string lines;
  for (std::size_t i = 0; i < 200; ++i)
    lines += core::json::serialize(core::json::object{{"id", i}, {"text", texts[i]}}) + "\n";
  core::write_file_atomic(folder / "a.jsonl", lines + "\n");  // and a blank line
  for (std::size_t i = 200; i < texts.size(); ++i)
    core::write_file_atomic(folder / "more" / fmt::format("{}.txt", i), texts[i]);
  core::write_file_atomic(folder / "more" / "z.txt", "broken \xff\xfe bytes");
  core::write_file_atomic(folder / "ignored.png", "not text");
}

// Compare folders, catch codes.
std::map<std::string, std::string> shards_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename()] = core::read_file(entry.path());
  return files;
}

core::Code code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const core::Error& error) {
    return error.code();
  }
  return core::Code::internal;
}

// The same shards, however often it was killed.
TEST(Prepare, TheSameShardsHoweverOftenItWasStopped) {
  const Folder folder("same");
  const auto texts = made_up();
  write_inputs(folder.path / "in", texts);
  const text::Tokenizer tokenizer = tokenizer_for(text::SplitRule::gpt2, texts[0]);
  PrepareOptions options{.inputs = {folder.path / "in"},
                         .out = folder.path / "whole",
                         .tokenizer = &tokenizer,
                         .held_out = 0.2,
                         .shard_tokens = 20'000,
                         .batch_bytes = 20'000,
                         .duplicates = Duplicates::near,
                         .quiet = true};
  const PrepareResult whole = prepare(options);
  EXPECT_EQ(whole.documents, 302);
  EXPECT_EQ(whole.dropped.at("exact copy"), 30);
  EXPECT_EQ(whole.dropped.at("near copy"), 30);
  EXPECT_EQ(whole.dropped.at("not UTF-8"), 1);
  EXPECT_EQ(whole.dropped.at("empty"), 1);
  EXPECT_EQ(whole.kept, 240);
  EXPECT_NEAR(static_cast<double>(whole.held_out) / 240, 0.2, 0.1);
  EXPECT_GT(whole.shards, 3);
  const auto expected = shards_of(options.out);
  for (int threads = 1; threads <= 3; ++threads) {
    core::ThreadPool pool(threads);
    options.pool = &pool;
    options.out = folder.path / std::to_string(threads);
    int stops = 0;
    for (bool done = false; !done;) {
      int batches = 0;
      options.after_batch = [&](std::int64_t) {
        if (++batches > 3 + stops) throw std::runtime_error("stopped");
      };
      try {
        const PrepareResult result = prepare(options);
        done = true;
        EXPECT_EQ(result.tokens, whole.tokens);
        EXPECT_EQ(result.dropped, whole.dropped);
      } catch (const std::runtime_error&) {
        ASSERT_LT(++stops, 100);
      }
    }
    EXPECT_GT(stops, 2);
    EXPECT_EQ(shards_of(options.out), expected) << threads;
  }
  EXPECT_TRUE(prepare(options).resumed);  // done: a second call reads the journal and stops
  options.held_out = 0.3;
  EXPECT_EQ(code_of([&] { prepare(options); }), core::Code::invalid_argument);
}

// Nothing is on both sides, nothing is lost.
TEST(Prepare, NothingIsOnBothSidesAndNothingIsLost) {
  const Folder folder("sides");
  const auto texts = made_up();
  write_inputs(folder.path / "in", texts);
  const text::Tokenizer tokenizer = tokenizer_for(text::SplitRule::gpt2, texts[0]);
  const std::string exam = texts[3].substr(0, texts[3].size() / 2) + "\n";
  core::write_file_atomic(folder.path / "exam.txt", exam);
  PrepareOptions options{.inputs = {folder.path / "in"},
                         .out = folder.path / "out",
                         .tokenizer = &tokenizer,
                         .held_out = 0.3,
                         .duplicates = Duplicates::keep,
                         .exams = {folder.path / "exam.txt"},
                         .quiet = true};
  const PrepareResult result = prepare(options);
  EXPECT_EQ(result.dropped.at("part of an evaluation set"), 2);  // the page and its copy
  std::map<std::string, std::set<std::string>> found;
  for (const char* name : {"train", "val"}) {
    const Shard shard = Shard::open(options.out / fmt::format("{}-00000.bin", name));
    EXPECT_EQ(shard.info().tokenizer, tokenizer.hash());
    for (std::int64_t d = 0; d < shard.documents(); ++d) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(shard.document(d).size()));
      shard.copy(shard.document(d).begin, ids);
      found[name].insert(tokenizer.decode(ids));
    }
  }
  std::set<std::string> both(found["train"]);
  both.insert(found["val"].begin(), found["val"].end());
  EXPECT_EQ(both.size(), found["train"].size() + found["val"].size());  // copies are together
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(both.contains(texts[i]), i != 3 && i != 8) << i;
}

TEST(Prepare, SaysWhatIsWrong) {
  const Folder folder("wrong");
  const text::Tokenizer tokenizer = tokenizer_for(text::SplitRule::gpt2, "some text");
  PrepareOptions options{
      .inputs = {folder.path}, .out = folder.path / "out", .tokenizer = &tokenizer, .quiet = true};
  EXPECT_EQ(code_of([&] { prepare(options); }), core::Code::not_found);
  core::write_file_atomic(folder.path / "a.jsonl", "{\"text\": \"fine\"}\n{\"text\": 3}\n");
  try {
    prepare(options);
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::Code::corrupt);
    EXPECT_TRUE(error.argument().ends_with("a.jsonl:2")) << error.argument();
  }
  options.inputs = {folder.path / "x.parquet"};
  EXPECT_EQ(code_of([&] { prepare(options); }), core::Code::unsupported);
  core::write_file_atomic(folder.path / "b.txt", "one\n%\ntwo\n%\n");
  options.inputs = {folder.path / "b.txt"};
  options.source.delimiter = "%";
  options.out = folder.path / "two";
  EXPECT_EQ(prepare(options).kept, 2);
}

}  // namespace
}  // namespace rose::trainer
