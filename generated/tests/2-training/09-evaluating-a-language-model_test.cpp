// Tests of the chapter "Evaluating a language model".

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
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/evaluate/choices.h"
#include "rose/trainer/evaluate/endings.h"
#include "rose/trainer/evaluate/intervals.h"
#include "rose/trainer/evaluate/scorer.h"
#include "rose/trainer/evaluate/text_score.h"

namespace rose::trainer {
namespace {

// The numbers above.
TEST(TextScore, ByHand) {
  TextScore first, second;
  first.total = {.log_prob = -2.88 * 1000, .tokens = 1000, .bytes = 2540};
  second.total = {.log_prob = -3.6 * 1000, .tokens = 1000, .bytes = 3300};
  labs::write_value("eval-by-hand", "bits", first.loss() / std::log(2.0));
  labs::write_value("eval-by-hand", "bpb", first.bits_per_byte());
  labs::write_value("eval-by-hand", "perplexity", first.perplexity());
  labs::write_value("eval-by-hand", "other-perplexity", second.perplexity());
  labs::write_value("eval-by-hand", "other-bpb", second.bits_per_byte());
  EXPECT_NEAR(first.bits_per_byte(), 1.636, 0.001);
  EXPECT_GT(second.perplexity(), 2 * first.perplexity());
  EXPECT_LT(second.bits_per_byte(), first.bits_per_byte());
}

// Every token is counted once, at every stride.
text::Tokenizer letters() {
  text::BpeTrainerOptions options;
  options.vocab_size = 300, options.special_tokens = {"<|endoftext|>"};
  text::BpeTrainer trainer(options);
  trainer.feed("the cat sat on the mat and the hat; the rat ran at the cat that sat there");
  text::Vocab vocabulary = trainer.train();
  vocabulary.bos = vocabulary.eos = 0;
  return text::Tokenizer(vocabulary, "letters");
}

std::shared_ptr<model::WeightSet> small_model(std::int64_t vocabulary) {
  model::Config c;
  c.family = model::Family::llama, c.vocab_size = vocabulary, c.layers = 2, c.hidden = 32;
  c.heads = 2, c.kv_heads = 1, c.head_dim = 16, c.ffn = 48, c.max_positions = 64;
  return model::random_weights(c, 3);
}

TEST(TextScore, CountsEachTokenOnceAtEveryStride) {
  const text::Tokenizer tokenizer = letters();
  std::vector<std::vector<std::int32_t>> documents;
  const LogProbs own = [](const MicroBatch& batch, std::span<float> out) {
    for (std::size_t t = 0; t < out.size(); ++t)
      out[t] = batch.targets[t] < 0 ? 0.0f : -static_cast<float>(batch.targets[t]);
  };
  double expected = 0;
  std::int64_t tokens = 0, bytes = 0;
  for (const std::string_view text : {"the cat sat on the mat and ran at the hat", "a rat", ""}) {
    documents.push_back(tokenizer.encode(text, false));
    for (const std::int32_t id : documents.back()) expected -= id, ++tokens;
    bytes += static_cast<std::int64_t>(text.size());
  }
  for (std::int64_t context = 1; context <= 12; ++context) {
    for (std::int64_t stride = 1; stride <= context; ++stride) {
      const TextScore score = score_documents(own, tokenizer, documents,
                                              {.context = context, .stride = stride, .most = 9});
      ASSERT_EQ(score.total.log_prob, expected) << context << " " << stride;
      ASSERT_EQ(score.total.tokens, tokens);
      ASSERT_EQ(score.total.bytes, bytes);
    }
  }
  EXPECT_THROW(score_documents(own, tokenizer, documents, {.context = 4, .stride = 5}),
               core::Error);
  documents.assign(2, {});
  EXPECT_THROW(score_documents(own, tokenizer, documents, {}), core::Error);
}

// Evaluation and training give the same bits, alone or in company.
TEST(Scorer, AgreesWithTheTrainerBitForBit) {
  core::ThreadPool pool(2);
  const text::Tokenizer tokenizer = letters();
  const auto weights = small_model(320);
  const LogProbs alone = cpu_log_probs(weights, pool);
  CpuCompute trainer(small_model(320), {}, pool);
  const LogProbs training = [&](const MicroBatch& batch, std::span<float> out) {
    trainer.logprobs(batch, out);
  };
  std::vector<Sequence> sequences;
  core::Rng rng(5);
  for (std::size_t s = 0; s < 12; ++s) {
    Sequence sequence;
    for (std::size_t i = 0; i < 2 + s; ++i)
      sequence.ids.push_back(static_cast<std::int32_t>(rng.below(300)));
    sequence.first = 1 + s / 2;
    sequences.push_back(sequence);
  }
  const auto packed = score_sequences(alone, sequences, 1000);
  EXPECT_EQ(packed, score_sequences(alone, sequences, 1));
  EXPECT_EQ(packed, score_sequences(training, sequences, 30));
  for (const double sum : packed) EXPECT_LT(sum, 0.0);
}

// Where a context ends decides how it is cut.
TEST(Choices, WhiteSpaceBelongsToTheEnding) {
  const text::Tokenizer tokenizer = letters();
  std::vector<std::vector<std::int32_t>> seen;
  const LogProbs own = [&](const MicroBatch& batch, std::span<float> out) {
    seen.emplace_back(batch.targets.begin(), batch.targets.end());
    std::fill(out.begin(), out.end(), -1.0f);
  };
  const std::vector<ChoiceItem> tight{{.context = "the cat", .endings = {"sat", "ran"}}},
      wide{{.context = "the cat ", .endings = {"sat", "ran"}}},
      word{{.context = "the c", .endings = {" at", " sat"}}};
  score_choices(own, tokenizer, tight, {});
  score_choices(own, tokenizer, wide, {});
  EXPECT_EQ(seen[0], seen[1]);
  // Cut apart, "the cat " ends in a token of its own, which no text has before "sat".
  EXPECT_NE(tokenizer.encode("the cat sat", false).size(),
            tokenizer.encode("the cat ", false).size() + tokenizer.encode("sat", false).size());
  EXPECT_FALSE(score_choices(own, tokenizer, tight, {})[0].straddled);
  EXPECT_FALSE(score_choices(own, tokenizer, word, {})[0].straddled);
}

TEST(Choices, TheDivisionDecides) {
  ChoiceScore score;
  score.endings = {{.log_prob = -6, .tokens = 2, .bytes = 12},    // short, quite likely
                   {.log_prob = -8, .tokens = 4, .bytes = 13},    // more tokens
                   {.log_prob = -10, .tokens = 4, .bytes = 25}};  // more text
  EXPECT_EQ(score.choice(Division::none), 0u);
  EXPECT_EQ(score.choice(Division::tokens), 1u);
  EXPECT_EQ(score.choice(Division::bytes), 2u);
}

TEST(Choices, BadLinesAreNamed) {
  const auto refused = [](std::string_view line, std::string_view expected) {
    try {
      parse_choices(fmt::format("\n{}\n", line), "set.jsonl");
      return false;
    } catch (const core::Error& error) {
      return std::string(error.what()).find("set.jsonl:2") != std::string::npos &&
             std::string(error.what()).find(expected) != std::string::npos;
    }
  };
  EXPECT_TRUE(refused(R"({"context": "a", "endings": ["b", "c"], "label": 2})", "0 to 1"));
  EXPECT_TRUE(refused(R"({"context": "a", "endings": ["b"], "label": 0})", "two endings"));
  EXPECT_TRUE(refused(R"({"context": "a", "endings": ["b", "c"]})", "label"));
  EXPECT_TRUE(refused(R"({"endings": ["b", "c"], "label": 0})", "ctx"));
  EXPECT_TRUE(refused(R"({"context": )", ""));
  EXPECT_EQ(parse_choices(R"({"ctx": "a", "endings": ["b", "c"], "label": "1"})", "x")[0].label,
            1u);
}

// The set gives nothing away that counting could find.
TEST(Endings, AreBalanced) {
  const std::vector<ChoiceItem> items = parse_choices(endings_lines(), "endings");
  ASSERT_EQ(items.size(), 40u);
  std::vector<int> labels(4, 0);
  int shortest = 0, longest = 0;
  for (const ChoiceItem& item : items) {
    ASSERT_EQ(item.endings.size(), 4u);
    const auto size = [](const std::string& ending) { return ending.size(); };
    const std::size_t right = item.endings[item.label].size();
    ++labels[item.label];
    shortest += right == std::ranges::min(item.endings, {}, size).size();
    longest += right == std::ranges::max(item.endings, {}, size).size();
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = 0; b < a; ++b) EXPECT_NE(item.endings[a], item.endings[b]);
  }
  EXPECT_EQ(labels, std::vector<int>(4, 10));
  EXPECT_LE(shortest, 12);
  EXPECT_LE(longest, 12);
}

// Intervals cover as often as they promise.
double covered(std::size_t n, double p, bool wilson) {
  const auto count = static_cast<double>(n);
  double sum = 0;
  for (std::size_t k = 0; k <= n; ++k) {
    const auto right = static_cast<double>(k);
    const double rate = right / count, half = 1.96 * std::sqrt(rate * (1 - rate) / count);
    const Interval i = wilson ? wilson_interval(k, n) : Interval{rate - half, rate + half};
    const double log_choose =
        std::lgamma(count + 1) - std::lgamma(right + 1) - std::lgamma(count - right + 1);
    if (i.low <= p && p <= i.high)
      sum += std::exp(log_choose + right * std::log(p) + (count - right) * std::log(1 - p));
  }
  return sum;
}

TEST(Intervals, WilsonCoversWhereTheTextbookDoesNot) {
  labs::write_value("eval-intervals-test", "wald-at-95", 100 * covered(40, 0.95, false));
  labs::write_value("eval-intervals-test", "wilson-at-95", 100 * covered(40, 0.95, true));
  const Interval thirty = wilson_interval(30, 40), large = wilson_interval(7029, 10042);
  labs::write_value("eval-intervals-test", "low-30", 100 * thirty.low);
  labs::write_value("eval-intervals-test", "high-30", 100 * thirty.high);
  labs::write_value("eval-intervals-test", "half-10042", 50 * (large.high - large.low));
  double worst = 1, worst_wald = 1;
  for (double p = 0.03; p < 0.975; p += 0.01) {
    worst = std::min(worst, covered(40, p, true));
    worst_wald = std::min(worst_wald, covered(40, p, false));
  }
  EXPECT_GT(worst, 0.88);
  EXPECT_LT(worst_wald, 0.75);
}

TEST(Intervals, DocumentsAreDrawnNotTokens) {
  constexpr int trials = 200, documents = 40, tokens = 30;
  int by_document = 0, by_token = 0, paired_narrower = 0;
  for (int trial = 0; trial < trials; ++trial) {
    core::Rng rng(static_cast<std::uint64_t>(trial), 9);
    std::vector<double> loss, other, one;
    for (int d = 0; d < documents; ++d) {
      const double hard = 3 + static_cast<double>(rng.normal());
      double sum = 0, sum_other = 0;
      for (int t = 0; t < tokens; ++t) {
        one.push_back(hard + static_cast<double>(rng.normal()));
        sum += one.back(), sum_other += hard - 0.05 + static_cast<double>(rng.normal());
      }
      loss.push_back(sum / tokens), other.push_back(sum_other / tokens);
    }
    const auto mean_of = [](const std::vector<double>& values) {
      return [&values](std::span<const std::size_t> drawn) {
        double sum = 0;
        for (const std::size_t i : drawn) sum += values[i];
        return sum / static_cast<double>(drawn.size());
      };
    };
    const Interval a = bootstrap_interval(loss.size(), mean_of(loss), 1, 300),
                   b = bootstrap_interval(one.size(), mean_of(one), 1, 100);
    by_document += a.low <= 3 && 3 <= a.high;
    by_token += b.low <= 3 && 3 <= b.high;
    for (std::size_t d = 0; d < loss.size(); ++d) other[d] -= loss[d];
    const Interval difference = bootstrap_interval(other.size(), mean_of(other), 1, 300);
    paired_narrower += difference.high - difference.low < 0.5 * (a.high - a.low);
  }
  EXPECT_GT(by_document, trials * 88 / 100);
  EXPECT_LT(by_token, trials * 60 / 100);
  EXPECT_EQ(paired_narrower, trials);
}

}  // namespace
}  // namespace rose::trainer
