// Tests of the chapter "The ground floor: errors, files, threads".

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

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/core/json.h"
#include "rose/core/log.h"
#include "rose/core/parallel.h"
#include "rose/core/progress.h"
#include "rose/core/utf8.h"

namespace rose::core {
namespace {

// An error names its parts on a terminal and in one line.
TEST(Error, NamesItsParts) {
  try {
    throw Error(Code::corrupt, "the file ends inside its tensor table")
        .in("model.gguf")
        .hint("download it again");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(),
                 "model.gguf: the file ends inside its tensor table (download it again)");
    EXPECT_EQ(describe(error),
              "the file ends inside its tensor table\n  in: model.gguf\n  help: download it again");
    EXPECT_EQ(exit_code(error), 4);
  }
}

TEST(Error, CopiesWithoutThrowing) {
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  const Error first = Error(Code::io, "a").in("b");
  const Error second = Error(first).in("c");  // the copy changes, the original does not
  EXPECT_STREQ(first.what(), "b: a");
  EXPECT_STREQ(second.what(), "c: a");
}

TEST(Error, ForeignExceptionsHaveExitCodesToo) {
  EXPECT_EQ(exit_code(std::bad_alloc()), 6);
  EXPECT_EQ(exit_code(std::runtime_error("?")), 1);
  EXPECT_EQ(exit_code(std::filesystem::filesystem_error("?", std::error_code())), 6);
  EXPECT_THAT(describe(std::bad_alloc()), testing::StartsWith("out of memory"));
  EXPECT_EQ(exit_code(Code::cancelled), 130);
}

// A writer killed at any moment leaves one complete version.
class Folder {  // a fresh folder for a test, removed with all it holds
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rose-core-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  auto count() const {
    return std::distance(std::filesystem::directory_iterator(path_),
                         std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

// Kills a writer of one file at a random moment, `rounds` times; returns how often half of it was left.
int torn_files(int rounds, void (*replace)(const std::filesystem::path&, const std::string&)) {
  constexpr std::size_t size = 300'000;
  const Folder folder;
  const auto target = folder / "checkpoint";
  write_file_atomic(target, std::string(size, 'a'));
  std::mt19937 random(1);
  int torn = 0;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = ::fork();
    if (child < 0) throw Error(Code::internal, "cannot fork");
    if (child == 0) {
      for (char letter = 'a';; letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1)) {
        replace(target, std::string(size, letter));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string found = read_file(target);
    torn += found != std::string(size, found.empty() ? '?' : found[0]);
  }
  return torn;
}

TEST(AtomicFile, SurvivesBeingKilledAndANaiveWriterDoesNot) {
  EXPECT_EQ(torn_files(25, [](const std::filesystem::path& path,
                              const std::string& text) { write_file_atomic(path, text); }),
            0);
  EXPECT_GT(torn_files(100, [](const std::filesystem::path& path,
                               const std::string& text) { std::ofstream(path) << text; }),
            0);
}

// A failed write changes nothing, and a successful one keeps links and permissions.
Code code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Code::internal;
}

TEST(AtomicFile, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const Folder folder;
  write_file_atomic(folder / "f", "old");
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100'000, before.rlim_max};
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Code code = code_of([&] { write_file_atomic(folder / "f", std::string(200'000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(code, Code::resource_exhausted);
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, AbandonedMeansUntouched) {
  const Folder folder;
  {
    AtomicFile file(folder / "f");
    file.write("never committed");
    EXPECT_EQ(file.written(), 15u);
    EXPECT_EQ(folder.count(), 1);  // the temporary
  }
  EXPECT_EQ(folder.count(), 0);
}

TEST(AtomicFile, KeepsPermissionsAndFollowsLinks) {
  namespace fs = std::filesystem;
  const Folder folder;
  write_file_atomic(folder / "secret", "1");
  fs::permissions(folder / "secret", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("secret", folder / "link");
  write_file_atomic(folder / "link", "2", Durability::power);
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "secret"), "2");
  EXPECT_EQ(fs::status(folder / "secret").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(AtomicFile, RefusesWhatIsNoFile) {
  const Folder folder;
  EXPECT_EQ(code_of([] { write_file_atomic("/dev/null", "x"); }), Code::invalid_argument);
  EXPECT_EQ(code_of([&] { write_file_atomic(folder / "", "x"); }), Code::invalid_argument);
  EXPECT_EQ(code_of([&] { write_file_atomic(folder / "none/f", "x"); }), Code::not_found);
}

// A mapping outlives moves and replacement of its file.
TEST(MappedFile, OutlivesMovesAndReplacement) {
  const Folder folder;
  write_file_atomic(folder / "f", "first");
  MappedFile one = MappedFile::open(folder / "f");
  const std::string_view text = one.text();
  write_file_atomic(folder / "f", "second version");
  const MappedFile two = std::move(one);
  EXPECT_EQ(text, "first");
  EXPECT_EQ(two.text().data(), text.data());
  EXPECT_TRUE(one.bytes().empty());  // NOLINT(bugprone-use-after-move): that is the point
  EXPECT_EQ(MappedFile::open(folder / "f").text(), "second version");
}

TEST(MappedFile, HasNoTroubleWithEmptinessAndRefusesTheRest) {
  const Folder folder;
  write_file_atomic(folder / "empty", "");
  EXPECT_TRUE(MappedFile::open(folder / "empty").bytes().empty());
  EXPECT_EQ(code_of([&] { MappedFile::open(folder / ""); }), Code::invalid_argument);
  EXPECT_EQ(code_of([&] { MappedFile::open(folder / "none"); }), Code::not_found);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { MappedFile::open(folder / "pipe"); }), Code::invalid_argument);
  EXPECT_EQ(code_of([&] { read_file(folder / "none"); }), Code::not_found);
  EXPECT_EQ(code_of([&] { read_file("/proc/self/maps", 10); }), Code::resource_exhausted);
  EXPECT_FALSE(read_file("/proc/self/maps").empty());  // its size reads as zero
}

// Faults are located, and values survive a round trip.
std::string json_error(std::string_view text, JsonLimits limits = {}) {
  try {
    parse_json(text, "c.json", limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Json, LocatesFaults) {
  EXPECT_EQ(json_error(R"({"a": 1})"), "none");
  EXPECT_THAT(json_error("{\n  \"a\": tru\n}"), testing::StartsWith("c.json:2:"));
  EXPECT_EQ(json_error("{\"\xC3\xA4\": ?}"),  // columns count characters: the a-umlaut is one
            "c.json:1:7: not valid JSON: syntax error");
  EXPECT_EQ(json_error("[1, 2"), "c.json:1:6: not valid JSON: it ends too early");
  EXPECT_EQ(json_error("{}\n\n  x"),
            "c.json:3:3: not valid JSON: there is more text after the document");
  EXPECT_THAT(json_error("\"\xff\""), testing::StartsWith("c.json:1:"));  // not UTF-8
  EXPECT_THAT(json_error(""), testing::HasSubstr("it ends too early"));
}

TEST(Json, HasLimits) {
  const std::string deep(200, '[');
  EXPECT_THAT(json_error(deep), testing::HasSubstr("it nests more than 128 levels deep"));
  EXPECT_THAT(json_error("[1,2,3]", {.bytes = 3}), testing::HasSubstr("more than the 3 allowed"));
}

TEST(Json, GettersNameTheField) {
  const json::value value = parse_json(R"({"n": 1e3, "x": 0.5, "s": "t", "none": null})", "c.json");
  const json::object& object = as_object(value, "c.json");
  EXPECT_EQ(get_int(object, "n", "c.json"), 1000);
  EXPECT_EQ(get_int_or(object, "none", 7, "c.json"), 7);
  EXPECT_EQ(get_string_or(object, "s", "", "c.json"), "t");
  const auto message = [&](auto&& get) {
    try {
      get();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([&] { get_int(object, "x", "c.json"); }),
            "c.json: \"x\" must be an integer, and is 5E-1");
  EXPECT_EQ(message([&] { get_int_or(object, "s", 1, "c.json"); }),
            "c.json: \"s\" must be an integer, and is a string");
  EXPECT_EQ(message([&] { get_bool(object, "none", "c.json"); }), "c.json: \"none\" is missing");
}

TEST(Json, PrintsTheShortestNumbers) {
  const std::string text =
      "{\n  \"rate\": 0.1,\n  \"one\": 1.0,\n  \"list\": [\n    1,\n    \"\\n\"\n  ],\n  \"none\": "
      "[]\n}";
  EXPECT_EQ(pretty_json(parse_json(text, "")), text);
  EXPECT_EQ(code_of([] { pretty_json(json::value(std::nan(""))); }), Code::invalid_argument);
}

// The hashes give published values.
TEST(Hash, GivesPublishedValues) {
  EXPECT_EQ(sha256_hex("abc"),  // FIPS 180-4's example
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(xxh3(std::string_view()), 0x2d06800538d394c2u);  // XXH3 of nothing
  Sha256 pieces;
  for (const char* piece : {"a", "", "bc"}) {
    pieces.update(std::as_bytes(std::span(std::string_view(piece))));
  }
  EXPECT_EQ(pieces.hex(), sha256_hex("abc"));
}

// Every code point survives, every three bytes are judged, and the standard's examples come out.
TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = decode_utf8(text, 0);
    ASSERT_TRUE(step.valid && step.code_point == c && step.length == text.size())
        << std::hex << static_cast<std::uint32_t>(c);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {  // every proper prefix could be completed
      const Utf8Step part = decode_utf8(std::string_view(text).substr(0, cut), 0);
      ASSERT_TRUE(!part.valid && part.incomplete && part.length == cut);
    }
  }
  EXPECT_EQ(code_of([] {
              std::string s;
              append_utf8(s, 0xD800);
            }),
            Code::invalid_argument);
  EXPECT_EQ(code_of([] {
              std::string s;
              append_utf8(s, 0x110000);
            }),
            Code::invalid_argument);
}

TEST(Utf8, SpellsAsByHand) {
  std::string text;
  append_utf8(text, 0xE9);
  EXPECT_EQ(text, "\xC3\xA9");
}

TEST(Utf8, EveryThreeBytesAreJudged) {
  std::array<int, 5> valid{};
  std::string text(3, '\0');
  for (unsigned bits = 0; bits < 1u << 24; ++bits) {
    for (unsigned i = 0; i < 3; ++i) text[i] = static_cast<char>(bits >> (16 - 8 * i) & 0xff);
    const Utf8Step step = decode_utf8(text, 0);
    if (step.valid) ++valid[step.length];
  }
  EXPECT_EQ(valid[1] >> 16, 128);               // then two free bytes
  EXPECT_EQ(valid[2] >> 8, 0x800 - 0x80);       // then one
  EXPECT_EQ(valid[3], 0x10000 - 0x800 - 2048);  // all but the surrogates
}

TEST(Utf8, RepairsAsTheStandardShows) {
  const std::string bad = "\uFFFD", two = bad + bad, five = two + two + bad,
                    eight = five + two + bad;
  EXPECT_EQ(repair_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), eight + "A");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), eight + "A");
  EXPECT_EQ(repair_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), five + "A" + two + "B");
  EXPECT_EQ(repair_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), two + two + "A");
  EXPECT_EQ(repair_utf8("\xE1\x80\xC2\x62"), two + "b");
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80"));
  EXPECT_TRUE(is_utf8("\u00e9\u20ac\U0001F339"));
}

// The largest ratio, over all waits t, of what a rule pays to what somebody who knew t would pay.
double worst_ratio(double spin, double wake) {
  double worst = 0;
  for (int i = 1; i <= 100'000; ++i) {
    const double t = 1e-3 * i;  // up to 100, far beyond the two prices below
    const double paid = t <= spin ? t : spin + wake;
    worst = std::max(worst, paid / std::min(t, wake));
  }
  return worst;
}

TEST(ThreadPool, SpinsAsLongAsIsBest) {
  EXPECT_NEAR(worst_ratio(10, 10), 2.0, 1e-3);
  EXPECT_NEAR(worst_ratio(5, 10), 3.0, 1e-2);   // 1 + 10/5
  EXPECT_NEAR(worst_ratio(20, 10), 3.0, 1e-2);  // 1 + 20/10
  for (double spin = 1; spin <= 40; spin += 0.5) {
    EXPECT_GE(worst_ratio(spin, 10), 2.0 - 1e-3) << spin;
  }
}

// In how many interleavings the caller sees nobody asleep and the worker sees no offer: a lost call.
int lost_calls(bool caller_writes_first) {
  int lost = 0;
  std::array<int, 4> order{0, 0, 1, 1};  // whose step is next: 0 the caller's, 1 the worker's
  do {
    bool offered = false, asleep = false, saw_sleeper = false, saw_offer = false;
    std::array<int, 2> done{};
    for (const int who : order) {
      const bool first = done[static_cast<std::size_t>(who)]++ == 0;
      if (who == 1) {
        first ? void(asleep = true) : void(saw_offer = offered);
      } else {
        first == caller_writes_first ? void(offered = true) : void(saw_sleeper = asleep);
      }
    }
    lost += !saw_sleeper && !saw_offer;
  } while (std::next_permutation(order.begin(), order.end()));
  return lost;
}

TEST(ThreadPool, TheHandshakeLosesNoCall) {
  EXPECT_EQ(lost_calls(true), 0);
  EXPECT_EQ(lost_calls(false), 1);  // caller reads, worker writes and reads, caller writes
}

// Ranges cover the loop once, at multiples of the grain.
TEST(ThreadPool, CoversEveryElementOnceAtMultiplesOfTheGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (const std::int64_t n : {0, 1, 2, 7, 10, 64, 1001}) {
      for (const std::int64_t grain : {1, 2, 16, 5000}) {
        std::vector<int> visits(static_cast<std::size_t>(n), 0);
        std::vector<int> used(static_cast<std::size_t>(threads), 0);
        pool.for_range(n, grain, [&](std::int64_t begin, std::int64_t end, int range) {
          ++used[static_cast<std::size_t>(range)];
          EXPECT_EQ(begin % grain, 0);
          EXPECT_LT(begin, end);
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int v) { return v == 1; }));
        ASSERT_LE(*std::max_element(used.begin(), used.end()), 1);
      }
    }
  }
}

TEST(ThreadPool, CutsAsComputedByHand) {
  ThreadPool pool(3);
  std::array<std::pair<std::int64_t, std::int64_t>, 3> cuts{};
  pool.for_range(10, 2, [&](std::int64_t begin, std::int64_t end, int range) {
    cuts[static_cast<std::size_t>(range)] = {begin, end};
  });
  EXPECT_THAT(cuts, testing::ElementsAre(std::pair(0, 4), std::pair(4, 8), std::pair(8, 10)));
  ThreadPool eight(8);  // five grains: five ranges, three threads have nothing to do
  std::array<std::int64_t, 8> begins{};
  begins.fill(-1);
  eight.for_range(10, 2, [&](std::int64_t begin, std::int64_t, int range) {
    begins[static_cast<std::size_t>(range)] = begin;
  });
  EXPECT_THAT(begins, testing::ElementsAre(0, 2, 4, 6, 8, -1, -1, -1));
}

// Loops nest, share a pool, and carry exceptions out.
TEST(ThreadPool, RunsNestedAndConcurrentLoopsOnTheirCaller) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  const auto outer = [&] {
    pool.for_range(30, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        pool.for_range(10, 1, [&](std::int64_t b, std::int64_t e) { sum += e - b; });
      }
    });
  };
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) outer();
  });
  for (int i = 0; i < 50; ++i) outer();
  other.join();
  EXPECT_EQ(sum.load(), 100 * 30 * 10);
}

TEST(ThreadPool, RethrowsTheLowestRangesExceptionAndGoesOn) {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> ended{0};
    try {
      pool.for_range(4, 1, [&](std::int64_t begin, std::int64_t) {
        ++ended;
        if (begin > 0) throw Error(Code::internal, std::to_string(begin));
      });
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "1");
    }
    EXPECT_EQ(ended.load(), 4);
  }
}

// No wake-up is lost at any interval, and nothing is allocated.
TEST(ThreadPool, LosesNoWakeUp) {
  ThreadPool pool(4);
  std::mt19937 random(3);
  std::array<std::int64_t, 4> parts{};
  for (int round = 0; round < 2000; ++round) {
    const auto pause = std::chrono::microseconds(random() % 8 == 0 ? 40 + random() % 60 : 0);
    std::this_thread::sleep_for(pause);
    pool.for_range(4, 1, [&](std::int64_t begin, std::int64_t) {
      if (begin == round % 4 && round % 16 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(70));  // the caller sleeps, too
      }
      parts[static_cast<std::size_t>(begin)] += begin;
    });
    ASSERT_THAT(parts, testing::ElementsAre(0, round + 1, 2 * (round + 1), 3 * (round + 1)));
  }
}

TEST(ThreadPool, AllocatesNothingPerCall) {
  ThreadPool pool(2);
  std::array<double, 64> data{};
  const auto loop = [&] {
    pool.for_range(64, 1, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t i = b; i < e; ++i) data[static_cast<std::size_t>(i)] += 1;
    });
  };
  loop();
  const auto before = ::mallinfo2().uordblks;
  for (int i = 0; i < 1000; ++i) loop();
  EXPECT_EQ(::mallinfo2().uordblks, before);
  EXPECT_EQ(data[63], 1001);
}

TEST(ThreadPool, RefusesNonsense) {
  EXPECT_EQ(code_of([] { ThreadPool pool(-1); }), Code::invalid_argument);
  EXPECT_GE(available_processors(), 1);
}

// Progress is silent when quick, plain in a pipe, and a bar on a terminal.
std::string printed_by(Progress::Style style, std::chrono::milliseconds pause) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress("Training", 40, "steps", file, style);
    progress.update(10);
    std::this_thread::sleep_for(pause);
    progress.update(20, "loss 2.31");
    progress.finish();
  }
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Progress, SuitsItsReader) {
  using std::chrono::milliseconds;
  EXPECT_EQ(printed_by(Progress::Style::detect, milliseconds(0)), "");
  EXPECT_THAT(
      printed_by(Progress::Style::detect, milliseconds(320)),
      testing::MatchesRegex("Training: 50 %, 20 steps, [0-9.]+/s, 0.[0-9] s left, loss 2.31\n"
                            "Training: 100 %, 40 steps, [0-9]+/s, 0.[0-9] s, loss 2.31\n"));
  EXPECT_THAT(printed_by(Progress::Style::bar, milliseconds(320)),
              testing::HasSubstr("50 % 20 steps"));
  EXPECT_EQ(printed_by(Progress::Style::none, milliseconds(320)), "");
}

TEST(Progress, SaysCountsAndTimesShortly) {
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(999), "999");
  EXPECT_EQ(short_count(1234567), "1.23 M");
  EXPECT_EQ(short_count(999600), "1.00 M");
  EXPECT_EQ(short_count(12.34), "12.3");
  EXPECT_EQ(short_time(0.84), "0.8 s");
  EXPECT_EQ(short_time(185), "3 min 05 s");
  EXPECT_EQ(short_time(7620), "2 h 07 min");
}

}  // namespace
}  // namespace rose::core
