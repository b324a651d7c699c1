// Tests of the chapter "Tokenizer files".

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
#include "rose/text/bpe_trainer.h"
#include "rose/text/tokenizer.h"

namespace rose::text {
namespace {

// A vocabulary survives every form.
Vocab sample(std::vector<SplitRule> split) {
  BpeTrainerOptions options;
  options.vocab_size = 330;
  options.split = split;
  options.special_tokens = {"<|begin|>", "<|end|>"};
  BpeTrainer trainer(options);
  trainer.feed("the cat and the hat, the rat that sat; 1234 12345 'tis the cat's");
  Vocab vocab = trainer.train();
  vocab.bos = 0;
  vocab.prefix = {0};
  return vocab;
}

const std::string probe = "<|begin|>the cats' 12345 hats\n\n  é <|end|>";

TEST(VocabFiles, TokenizerJsonKeepsEverything) {
  for (const auto& split : {std::vector{SplitRule::gpt2},
                            {SplitRule::llama3},
                            {SplitRule::qwen2},
                            {SplitRule::digits, SplitRule::gpt2}}) {
    const Tokenizer a(sample(split));
    const Tokenizer b = Tokenizer::from_hf_json(to_hf_json(a.vocab()));
    EXPECT_EQ(a.hash(), b.hash());
    EXPECT_EQ(a.encode(probe, true), b.encode(probe, true));
  }
}

TEST(VocabFiles, GgufKeepsWhatIdsDependOn) {
  const Tokenizer a(sample({SplitRule::digits, SplitRule::gpt2}));
  const GgufVocab gguf = to_gguf(a.vocab());
  EXPECT_EQ(gguf.pre, "smollm");
  const Tokenizer b = Tokenizer::from_gguf(gguf);
  EXPECT_EQ(a.encode(probe, true), b.encode(probe, true));
  EXPECT_EQ(b.bos(), 0);
  EXPECT_EQ(b.prefix().size(), 1u);
}

TEST(VocabFiles, TiktokenMergesByTheTokenThatResults) {
  std::string file;
  const std::vector<std::string> lines = {"YQ==", "Yg==", "YWI=", "YWJi", "YmI="};  // a b ab abb bb
  for (std::size_t i = 0; i < lines.size(); ++i) file += lines[i] + " " + std::to_string(i) + "\n";
  const Tokenizer t(vocab_from_tiktoken(file, {SplitRule::gpt2}, {{"<e>", 9}}, "file"));
  EXPECT_EQ(t.encode("abbbb", true), (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(t.encode("bb<e>", true), (std::vector<std::int32_t>{4, 9}));
}

// Errors say what is wrong, and where.
std::string refusal(std::string_view json) {
  try {
    vocab_from_hf_json(json, "t.json");
  } catch (const core::Error& e) {
    return e.what();
  }
  return "accepted";
}

std::string document(
    std::string_view model,
    std::string_view rest = R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})") {
  return R"({"model":)" + std::string(model) + "," + std::string(rest) + "}";
}

TEST(VocabFiles, RefusalsNameTheirReason) {
  using ::testing::HasSubstr;
  const std::string good = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
  EXPECT_EQ(refusal(document(good)), "accepted");
  EXPECT_THAT(refusal("{"), HasSubstr("t.json"));
  EXPECT_THAT(refusal(document(R"({"type":"Unigram","vocab":[]})")), HasSubstr("Unigram"));
  EXPECT_THAT(refusal(document(R"({"vocab":{"a":0},"merges":["a z"]})")), HasSubstr("\"z\""));
  EXPECT_THAT(refusal(document(R"({"vocab":{"a":0,"b":1},"merges":[["a","b"]]})")),
              HasSubstr("\"ab\""));
  EXPECT_THAT(refusal(document(R"({"vocab":{"a":0,"b":0},"merges":[]})")), HasSubstr("id 0"));
  EXPECT_THAT(refusal(document(R"({"vocab":{"a":4000000000},"merges":[]})")),
              HasSubstr("no sensible id"));
  EXPECT_THAT(refusal(document(R"({"vocab":{"a":-1},"merges":[]})")), HasSubstr("no sensible id"));
  EXPECT_THAT(refusal(document(R"({"vocab":{"a":0},"merges":[],"byte_fallback":true})")),
              HasSubstr("byte_fallback"));
  EXPECT_THAT(refusal(document(good, R"("pre_tokenizer":{"type":"Metaspace"})")),
              HasSubstr("Metaspace"));
  EXPECT_THAT(
      refusal(document(
          good,
          R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"x+"},"behavior":"Isolated"})")),
      HasSubstr("x+"));
  EXPECT_THAT(
      refusal(document(
          good,
          R"("normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})")),
      HasSubstr("Lowercase"));
  GgufVocab gguf;
  gguf.model = "llama";
  EXPECT_THROW(vocab_from_gguf(gguf), core::Error);
  gguf.model = "gpt2", gguf.pre = "unheard-of";
  EXPECT_THROW(vocab_from_gguf(gguf), core::Error);
  EXPECT_THROW(vocab_from_tiktoken("YQ== 0\nnot base64! 1\n", {SplitRule::gpt2}, {}, "file"),
               core::Error);
}

}  // namespace
}  // namespace rose::text
