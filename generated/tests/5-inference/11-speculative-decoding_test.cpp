// Tests of the chapter "Speculative decoding".

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

#include <cmath>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/drafter.h"
#include "rose/infer/lookup_drafter.h"
#include "rose/infer/runner_drafter.h"
#include "rose/infer/speculation.h"

namespace rose::infer {
namespace {

// Count the outcomes of 27 texts.
using Chain = std::vector<std::vector<double>>;  // [last][next]
const Chain model_chain{{0.5, 0.3, 0.2}, {0.1, 0.1, 0.8}, {0.4, 0.6, 0.0}};
const Chain draft_chain{{0.6, 0.1, 0.3}, {0.3, 0.3, 0.4}, {0.2, 0.5, 0.3}};

TEST(Speculation, RejectionKeepsTheJointDistribution) {
  constexpr int texts = 30'000;
  std::map<std::vector<std::int32_t>, int> counts;
  core::Rng rng(11);
  int drafted = 0, kept = 0;
  for (int i = 0; i < texts; ++i) {
    std::vector<std::int32_t> text{0};
    while (text.size() < 4) {
      std::vector<std::int32_t> drafts;
      std::vector<std::vector<double>> target, draft;
      std::int32_t last = text.back();
      for (int k = 0; k < 2; ++k) {
        target.push_back(model_chain[static_cast<std::size_t>(last)]);
        draft.push_back(draft_chain[static_cast<std::size_t>(last)]);
        const double u = rng.uniform64();
        last = u < draft.back()[0] ? 0 : u < draft.back()[0] + draft.back()[1] ? 1 : 2;
        drafts.push_back(last);
      }
      target.push_back(model_chain[static_cast<std::size_t>(last)]);
      const bool from_zero = text.back() == 0;
      const Verified v = verify_by_rejection(drafts, target, draft, rng);
      if (from_zero) ++drafted, kept += v.kept > 0 ? 1 : 0;
      text.insert(text.end(), drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(v.kept));
      text.push_back(v.next);
    }
    text.resize(4);
    ++counts[text];
  }
  double chi = 0, outcomes = 0;
  for (std::int32_t a = 0; a < 3; ++a)
    for (std::int32_t b = 0; b < 3; ++b)
      for (std::int32_t c = 0; c < 3; ++c) {
        const auto p = [](std::int32_t from, std::int32_t to) {
          return model_chain[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
        };
        const double expected = texts * p(0, a) * p(a, b) * p(b, c);
        const int count = counts[{0, a, b, c}];
        if (expected == 0.0) {
          EXPECT_EQ(count, 0);
          continue;
        }
        chi += (count - expected) * (count - expected) / expected, outcomes += 1;
      }
  EXPECT_LE(chi, outcomes - 1 + 5 * std::sqrt(2 * (outcomes - 1)));
  EXPECT_NEAR(static_cast<double>(kept) / drafted, 0.8, 0.015);  // the example by hand
}

// Count agreements under shared noise.
TEST(Speculation, SharedNoiseAgreesAsDerived) {
  const std::vector<double> p{0.5, 0.3, 0.2}, q{0.6, 0.1, 0.3};
  EXPECT_NEAR(agreement(p, q), 1 / 2.1 + 1.0 / 10 + 1.0 / 5, 1e-12);
  EXPECT_NEAR(agreement(p, p), 1.0, 1e-12);
  EXPECT_NEAR(agreement(p, std::vector<double>{0, 1, 0}), 0.3, 1e-12);
  const auto logits = [](const std::vector<double>& w) {
    std::vector<float> z;
    for (const double x : w) z.push_back(static_cast<float>(std::log(x)));
    return z;
  };
  const auto zp = logits(p), zq = logits(q);
  std::vector<std::pair<float, std::int32_t>> scratch;
  constexpr int draws = 40'000;
  int same = 0;
  for (int i = 0; i < draws; ++i) {
    const kernels::SamplingParams s{
        .temperature = 1.0f, .seed = 3, .position = static_cast<std::uint64_t>(i)};
    same += kernels::sample(zp, s, scratch).token == kernels::sample(zq, s, scratch).token ? 1 : 0;
  }
  EXPECT_NEAR(same / double{draws}, agreement(p, q), 0.01);
  core::Rng rng(5);
  for (int i = 0; i < 200; ++i) {  // the bound
    std::vector<double> a(6), b(6);
    double sa = 0, sb = 0, d = 0;
    for (std::size_t v = 0; v < 6; ++v) {
      sa += a[v] = std::exp(rng.normal());
      sb += b[v] = std::exp(rng.normal());
    }
    for (std::size_t v = 0; v < 6; ++v) d += 0.5 * std::fabs((a[v] /= sa) - (b[v] /= sb));
    EXPECT_GE(agreement(a, b), (1 - d) / (1 + d) - 1e-12);
    EXPECT_LE(agreement(a, b), 1 - d + 1e-12);
  }
}

// Compare the formula with a simulation.
TEST(Speculation, PaysWhenRowsAreCheap) {
  EXPECT_NEAR(tokens_per_pass(0.8, 4), 3.3616, 1e-12);
  core::Rng rng(9);
  Acceptance seen;
  for (int pass = 0; pass < 40'000; ++pass) {
    std::size_t kept = 0;
    while (kept < 4 && rng.uniform() < 0.8f) ++kept;
    seen.add(4, kept);
  }
  EXPECT_NEAR(seen.tokens_per_pass(), 3.3616, 0.02);
  EXPECT_NEAR(seen.recent, 0.8, 0.2);
  EXPECT_EQ(best_drafts(0.0, 0.0, 0.0, 8), 0);
  EXPECT_EQ(best_drafts(0.3, 0.0, 0.0, 8), 8);  // rows are free
  EXPECT_EQ(best_drafts(0.3, 0.4, 0.0, 8), 0);
  EXPECT_EQ(best_drafts(0.8, 0.2, 0.0, 8), 4);
}

// Look up, prefer the longest and the latest.
TEST(LookupDrafter, CopiesWhatFollowedBefore) {
  LookupDrafter drafter;
  std::vector<std::int32_t> out;
  using Ids = std::vector<std::int32_t>;
  drafter.draft(Ids{1, 2, 3, 4, 1, 2}, 3, out);
  EXPECT_EQ(out, (Ids{3, 4, 1}));
  drafter.draft(Ids{9, 1, 2, 5, 1, 2, 6, 9, 1, 2}, 1, out);
  EXPECT_EQ(out, (Ids{5}));  // three tokens in common beat the later two
  drafter.draft(Ids{1, 2, 5, 1, 2, 6, 1, 2}, 1, out);
  EXPECT_EQ(out, (Ids{6}));  // of equals the latest
  drafter.draft(Ids{1, 2, 3, 4, 5}, 3, out);
  EXPECT_TRUE(out.empty());
  drafter.draft(Ids{7, 7, 7, 7}, 3, out);
  EXPECT_EQ(out, (Ids{7}));
  drafter.draft(Ids{}, 3, out);
  EXPECT_TRUE(out.empty());
}

// Write one text with every drafter.
std::vector<float> toy_logits(std::span<const std::int32_t> text, float sharpness) {
  const std::int32_t last = text.back(), before = text.size() > 1 ? text[text.size() - 2] : 0;
  core::Rng rng(77, static_cast<std::uint64_t>(last * 20 + before));
  std::vector<float> z(20);
  for (float& x : z) x = sharpness * rng.normal();
  return z;
}

TEST(Speculation, TheTextDoesNotDependOnTheDrafter) {
  const kernels::SamplingParams asked{.temperature = 1.0f, .top_p = 0.95f, .seed = 21};
  std::vector<std::pair<float, std::int32_t>> scratch;
  const auto own = [&](std::span<const std::int32_t> text) {
    kernels::SamplingParams p = asked;
    p.position = text.size();
    return kernels::sample(toy_logits(text, 2.5f), p, scratch).token;
  };
  const auto write = [&](Drafter* drafter, Acceptance& seen) {
    std::vector<std::int32_t> text{1, 2}, drafts, drawn;
    while (text.size() < 300) {
      drafts.clear();
      if (drafter != nullptr) drafter->draft(text, 4, drafts);
      drawn.clear();
      std::vector<std::int32_t> place = text;
      for (std::size_t i = 0; i <= drafts.size(); ++i) {  // one pass computes all of these
        drawn.push_back(own(place));
        if (i < drafts.size()) place.push_back(drafts[i]);
      }
      const std::size_t kept = agreeing(drafts, drawn);
      seen.add(drafts.size(), kept);
      text.insert(text.end(), drawn.begin(), drawn.begin() + static_cast<std::ptrdiff_t>(kept + 1));
    }
    text.resize(300);
    return text;
  };
  std::vector<float> logits;
  const auto model = [&](float sharpness) {
    return ModelDrafter(
        [&, sharpness](std::span<const std::int32_t> text) {
          logits = toy_logits(text, sharpness);
          return std::span<const float>(logits);
        },
        asked);
  };
  ModelDrafter same = model(2.5f), blunt = model(1.5f);
  LookupDrafter lookup;
  Acceptance none, all, most, some;
  const auto alone = write(nullptr, none);
  EXPECT_EQ(write(&same, all), alone);
  EXPECT_EQ(write(&blunt, most), alone);
  EXPECT_EQ(write(&lookup, some), alone);
  EXPECT_EQ(all.rate(), 1.0);
  EXPECT_GT(most.rate(), 0.3);
  EXPECT_GT(some.kept, 0);
  labs::write_value("speculation-same-test", "blunt", most.tokens_per_pass());
  labs::write_value("speculation-same-test", "lookup", some.tokens_per_pass());
}

}  // namespace
}  // namespace rose::infer
