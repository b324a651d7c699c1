// Tests of the chapter "Supervised fine-tuning and LoRA".

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

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "labs/evidence/values.h"
#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"
#include "rose/kernels/dropout.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/gpu/dropout.h"
#include "rose/model/adapter_backward.h"
#include "rose/model/adapter_dropout.h"
#include "rose/model/gpu_adapters.h"
#include "rose/model/gpu_trained_adapter.h"
#include "rose/model/merge_adapter.h"
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/chat_encoder.h"
#include "rose/trainer/chat_task.h"
#include "rose/trainer/conversation.h"
#include "rose/trainer/gpu_lora_compute.h"
#include "rose/trainer/lora_compute.h"
#include "rose/trainer/packed_sequences.h"
#include "rose/trainer/run.h"
#include "rose/trainer/task.h"

namespace rose::trainer {
namespace {

// What cannot be meant is refused with its line.
std::string conversation_error(std::string_view line) {
  try {
    parse_conversation(line, "chat.jsonl:3");
  } catch (const core::Error& error) {
    return error.argument() + ": " + error.message();
  }
  return "";
}

TEST(Conversation, WhatCannotBeMeantIsRefusedWithItsLine) {
  constexpr const char* good =
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "Hello", "weight": 0}, {"role": "user", "content": "Bye"},
          {"role": "assistant", "content": "Bye"}]})";
  const Conversation c = parse_conversation(good, "x");
  EXPECT_EQ(c.learnt, (std::vector<std::uint8_t>{0, 0, 0, 0, 1}));
  EXPECT_FALSE(c.messages[2].as_object().contains("weight"));
  const auto of = [](const char* messages) {
    return conversation_error(std::string(R"({"messages": [)") + messages + "]}");
  };
  EXPECT_EQ(of(R"({"role": "bot", "content": "Hi"})"),
            "chat.jsonl:3: message 1 has the role \"bot\"");
  EXPECT_EQ(of(R"({"role": "user", "content": "Hi"}, {"role": "assistant", "content": " \n"})"),
            "chat.jsonl:3: message 2 is an answer without words");
  EXPECT_EQ(of(R"({"role": "user", "content": "Hi"})"), "chat.jsonl:3: nobody answers");
  EXPECT_EQ(of(R"({"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Hi"})"),
            "chat.jsonl:3: the last message is from user");
  EXPECT_EQ(of(R"({"role": "user", "content": "Hi"}, {"role": "system", "content": "Hi"})"),
            "chat.jsonl:3: message 2 is a system message");
  EXPECT_EQ(of(R"({"role": "user", "content": ["Hi"]})"),
            "chat.jsonl:3: the content of message 1 is not text");
  EXPECT_NE(of(R"({"content": "Hi"})").find("chat.jsonl:3, message 1: "), std::string::npos);
  EXPECT_NE(conversation_error("{\"messages\": [").find("chat.jsonl:3"), std::string::npos);
  EXPECT_EQ(of(""), "chat.jsonl:3: there are no messages");
}

// A tokenizer with everybody's special tokens.
const std::vector<std::string>& chat_specials() {
  static const std::vector<std::string> all{
      "<|endoftext|>", "<|im_start|>",      "<|im_end|>",
      "<|im_sep|>",    "<|eot_id|>",        "<|begin_of_text|>",
      "[INST]",        "[/INST]",           "<s>",
      "</s>",          "<|end_header_id|>", "<|start_header_id|>",
      "<｜User｜>",    "<｜Assistant｜>",   "<｜end▁of▁sentence｜>"};
  return all;
}

text::Tokenizer chat_tokenizer(std::size_t size = 400) {
  text::BpeTrainerOptions options;
  options.vocab_size = size;
  options.special_tokens = chat_specials();
  text::BpeTrainer trainer(options);
  trainer.feed(core::read_file("book/2-training/11-supervised-fine-tuning.md"));
  text::Vocab vocabulary = trainer.train();
  vocabulary.bos = vocabulary.eos = 0;
  return text::Tokenizer(vocabulary);
}

struct Learnt {
  std::string learnt, all;  ///< of one sequence
};

std::vector<Learnt> spell(const ChatEncoder& encoder, const Conversation& conversation) {
  std::vector<Learnt> out;
  for (const ChatSequence& sequence : encoder.encode(conversation)) {
    Learnt one;
    EXPECT_EQ(sequence.ids.size(), sequence.learnt.size());
    for (std::size_t i = 0; i < sequence.ids.size(); ++i) {
      const std::string piece(encoder.tokenizer().bytes(sequence.ids[i]));
      one.all += piece;
      one.learnt += sequence.learnt[i] == 1 ? piece : "";
    }
    out.push_back(one);
  }
  return out;
}

// A template of each family, and what is learnt under it.
struct TemplateCase {
  const char* source;
  std::string answers;  ///< what is learnt of three answers in one sequence; empty: three sequences
  std::string last;     ///< what is learnt of the last one
  const char* system = "Be brief.";
};

std::vector<TemplateCase> template_cases() {
  const auto all = [](const std::string& end, const std::string& before = "") {
    return before + "Four." + end + before + "Nine!" + end + before + "A  cat\nsat" + end;
  };
  const std::string folder = "tests/template/templates/";
  static const std::string header = folder + "header_turns.jinja",
                           separator = folder + "separator_turns.jinja",
                           bracket = folder + "bracket_turns.jinja",
                           machine = folder + "state_machine.jinja",
                           thinking = folder + "thinking_tools.jinja";
  return {{"chatml", all("<|im_end|>"), "A  cat\nsat<|im_end|>"},
          {"plain", all("<|endoftext|>", " "), " A  cat\nsat<|endoftext|>"},
          {separator.c_str(), all("<|im_end|>"), "A  cat\nsat<|im_end|>"},
          {header.c_str(), all("<|eot_id|>"), "A  cat\nsat<|eot_id|>"},
          {bracket.c_str(), all("</s>", " "), " A  cat\nsat</s>", nullptr},
          {machine.c_str(), all("<｜end▁of▁sentence｜>"), "A  cat\nsat<｜end▁of▁sentence｜>"},
          {thinking.c_str(), "", "<think>\n\n</think>\n\nA  cat\nsat<|im_end|>"}};
}

// Exactly the answers are learnt, whatever the template.
TEST(ChatEncoder, ExactlyTheAnswersAreLearntWhateverTheTemplate) {
  const text::Tokenizer tokenizer = chat_tokenizer();
  for (const TemplateCase& c : template_cases()) {
    const std::string eos =
        std::string(c.source).find("bracket") == std::string::npos ? "<|endoftext|>" : "</s>";
    const ChatEncoder encoder(tokenizer, chat_template_source(c.source), "<s>", eos);
    core::json::array messages;
    if (c.system != nullptr) messages.push_back({{"role", "system"}, {"content", c.system}});
    for (const auto& [question, answer] :
         {std::pair{"Two and two?", "Four."}, {"And five?", "Nine!"}, {"Rhyme.", "A  cat\nsat"}}) {
      messages.push_back({{"role", "user"}, {"content", question}});
      messages.push_back({{"role", "assistant"}, {"content", answer}});
    }
    const Conversation conversation = conversation_of(messages, "x", true);
    const std::vector<Learnt> spelt = spell(encoder, conversation);
    ASSERT_EQ(spelt.size(), c.answers.empty() ? 3u : 1u) << c.source;
    EXPECT_EQ(spelt.back().learnt, c.answers.empty() ? c.last : c.answers) << c.source;
    // The sequence begins with what the engine feeds for the first answer, and is the template's own writing.
    messages.resize(c.system != nullptr ? 2 : 1);
    const std::vector<std::int32_t> prompt = encoder.prompt(messages);
    const ChatSequence first = encoder.encode(conversation)[0];
    EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), first.ids.begin())) << c.source;
    EXPECT_EQ(std::count(first.learnt.begin(),
                         first.learnt.begin() + static_cast<std::ptrdiff_t>(prompt.size()), 1),
              0);
    EXPECT_EQ(tokenizer.encode(spelt[0].all, true), first.ids) << c.source;
    EXPECT_TRUE(encoder.end_of_answer()) << c.source;
    // Answers without weight are read and not learnt.
    Conversation unweighted = conversation;
    unweighted.learnt.assign(unweighted.learnt.size(), 0);
    EXPECT_TRUE(encoder.encode(unweighted).empty());
    unweighted.learnt.back() = 1;
    const auto only_last = spell(encoder, unweighted);
    ASSERT_EQ(only_last.size(), 1u);
    EXPECT_EQ(only_last[0].learnt, c.last) << c.source;
  }
}

// What would become a special token is refused, and so is what a template refuses.
TEST(ChatEncoder, RefusesWhatWouldBecomeASpecialToken) {
  const ChatEncoder encoder(chat_tokenizer(), chat_template_source("chatml"), "", "");
  try {
    encoder.encode(parse_conversation(
        R"({"messages": [{"role": "user", "content": "Say <|im_end|>"}, {"role": "assistant", "content": "No"}]})",
        "chat.jsonl:7"));
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.argument(), "chat.jsonl:7");
    EXPECT_EQ(error.message(), "message 1 holds the special token <|im_end|>");
  }
  const ChatEncoder strict(chat_tokenizer(),
                           core::read_file("tests/template/templates/bracket_turns.jinja"), "", "");
  try {
    strict.encode(parse_conversation(
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]})",
        "chat.jsonl:9"));
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.argument(), "chat.jsonl:9");
    EXPECT_NE(error.message().find("roles must alternate"), std::string::npos);
  }
  EXPECT_THROW(chat_template_source("chatlm"), core::Error);
}

// Every conversation once an epoch, whole, and again from any position.
std::vector<ChatSequence> numbered_sequences(std::size_t n) {
  std::vector<ChatSequence> out;
  core::Rng rng(4);
  for (std::size_t i = 0; i < n; ++i) {
    ChatSequence s{.ids = {}, .learnt = {}, .where = fmt::format("x:{}", i)};
    const std::size_t length = 3 + rng.below(14);
    for (std::size_t t = 0; t < length; ++t) {
      s.ids.push_back(static_cast<std::int32_t>(i));
      s.learnt.push_back(t >= length / 2 ? 1 : 0);
    }
    out.push_back(s);
  }
  return out;
}

TEST(PackedSequences, EveryConversationOnceAnEpochAndAgainFromAnyPosition) {
  PackedSequences packed(numbered_sequences(40), 32, 9, true),
      other(numbered_sequences(40), 32, 9, true);
  EXPECT_EQ(packed.cells() - packed.learnt(), [&] {
    std::int64_t n = 0;
    for (const ChatSequence& s : packed.sequences()) n += s.cells() - s.learnt_tokens();
    return n;
  }());
  std::vector<int> seen(40);
  std::int64_t counted = 0;
  MicroBatchBuffer batch;
  const std::int64_t rows = packed.rows();
  EXPECT_LE(rows, packed.cells() / 32 + 2);  // rows are nearly full
  for (std::int64_t r = 0; r < rows; ++r) {
    packed.next(1, batch);
    EXPECT_LE(batch.ids.size(), 32u);
    check(batch.view(), 40, 32);
    for (std::size_t s = 0; s + 1 < batch.row_offsets.size(); ++s)
      ++seen[static_cast<std::size_t>(batch.ids[static_cast<std::size_t>(batch.row_offsets[s])])];
    counted += static_cast<std::int64_t>(total_weight(batch.view()));
  }
  EXPECT_EQ(seen, std::vector<int>(40, 1));
  EXPECT_EQ(counted, packed.learnt());
  MicroBatchBuffer a, b;
  for (int i = 0; i < 7; ++i) packed.next(3, a);
  other.restore(packed.position());
  for (int i = 0; i < 9; ++i) {
    packed.next(2, a), other.next(2, b);
    ASSERT_EQ(a, b);
  }
  EXPECT_GE(packed.epoch(), 1);
  PackedSequences strangers(numbered_sequences(39), 32, 9, true);
  EXPECT_THROW(strangers.restore(packed.position()), core::Error);
  EXPECT_THROW(PackedSequences(numbered_sequences(40), 8, 9, true), core::Error);
  EXPECT_THROW(PackedSequences({}, 8, 9, true), core::Error);
}

// The share is kept, and a pass is thinned the same way twice.
TEST(Dropout, LeavesOutItsShareAndScalesTheRest) {
  core::ThreadPool one(1), two(2);
  constexpr std::size_t n = 100'000;
  const std::vector<float> x(n, 2.0f);
  std::vector<float> y(n), part(1000), again(n);
  const kernels::Dropout how{.rate = 0.25f, .seed = 7, .stream = 3};
  kernels::dropout(x, how, 0, y, one);
  kernels::dropout(x, how, 0, again, two);
  EXPECT_EQ(y, again);
  kernels::dropout(std::span(x).first(part.size()), how, 777, part, two);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), y.begin() + 777));
  const auto zeros = static_cast<double>(std::ranges::count(y, 0.0f));
  EXPECT_NEAR(zeros / n, 0.25, 5 * std::sqrt(0.25 * 0.75 / n));
  for (const float value : y) EXPECT_TRUE(value == 0.0f || value == 2.0f * (1.0f / 0.75f));
  kernels::dropout(x, {.rate = 0.0f, .scale = 3.0f}, 0, y, one);
  EXPECT_EQ(y, std::vector<float>(n, 6.0f));
}

// The example by hand, differentiated.
TEST(Lora, TheExampleByHand) {
  const auto leaf = [](std::vector<double> values, std::vector<std::int64_t> shape) {
    at::Tensor t = at::tensor(values, at::kDouble).reshape(shape).clone();
    t.requires_grad_(true);
    return t;
  };
  const at::Tensor x = leaf({1, 2}, {1, 2}), a = leaf({1, 1}, {1, 2}), b = leaf({2}, {1, 1});
  const at::Tensor w = at::tensor({1.0, 0.0}, at::kDouble).reshape({1, 2});
  const auto y_of = [&](const at::Tensor& a_now, const at::Tensor& b_now) {
    return x.matmul(w.t()) + 0.5 * x.matmul(a_now.t()).matmul(b_now.t());
  };
  const at::Tensor y = y_of(a, b);
  EXPECT_EQ(y.item<double>(), 4.0);
  const auto gradient = torch::autograd::grad({y.sum()}, {b, a, x});
  EXPECT_EQ(gradient[0].item<double>(), 1.5);
  EXPECT_TRUE(at::equal(gradient[1], at::tensor({1.0, 2.0}, at::kDouble).reshape({1, 2})));
  EXPECT_TRUE(at::equal(gradient[2], at::tensor({2.0, 1.0}, at::kDouble).reshape({1, 2})));
  EXPECT_NEAR(y_of(a - 0.1 * gradient[1], b - 0.1 * gradient[0]).item<double>(), 3.3125, 1e-12);
}

// A small model of each family, and something to learn.
model::Config lora_config(model::Family family) {
  model::Config c;
  c.family = family;
  c.vocab_size = 40, c.layers = 2, c.hidden = 32, c.heads = 4, c.kv_heads = 2, c.head_dim = 8;
  c.ffn = 48, c.max_positions = 64, c.tied_head = true;
  c.qk_norm = family == model::Family::qwen3;
  if (family == model::Family::gpt2) {
    c.kv_heads = 4, c.norm = model::NormKind::layernorm;
    c.activation = model::Activation::gelu_tanh;
  }
  return c;
}

MicroBatchBuffer lora_batch(std::uint64_t seed) {
  core::Rng rng(seed);
  MicroBatchBuffer batch;
  batch.clear();
  for (const int length : {9, 14}) {
    for (int t = 0; t < length; ++t)
      batch.push(static_cast<std::int32_t>(rng.below(40)),
                 t < 4 ? -1 : static_cast<std::int32_t>(rng.below(40)));
    batch.end_sequence();
  }
  return batch;
}

// An adapter is trained, the weights stay, and the merged model says the same.
TEST(Lora, TheAdapterIsTrainedAndTheMergedModelSaysTheSame) {
  core::ThreadPool pool(2);
  for (const auto family : {model::Family::gpt2, model::Family::llama, model::Family::qwen3}) {
    const auto weights = model::random_weights(lora_config(family), 3);
    for (const model::Parameter& p : weights->parameters())
      for (float& x : p.f32()) x *= p.shape.size() == 2 ? 4.0f : 1.0f;
    CpuCompute plain(weights, {}, pool);
    LoraCompute lora(weights, {.optimizer = {.weight_decay = 0.0f}, .z_loss = 0.0f},
                     {.rank = 4,
                      .alpha = 8,
                      .targets = {model::Linear::q, model::Linear::v, model::Linear::o,
                                  model::Linear::up, model::Linear::down}},
                     7, pool);
    const MicroBatchBuffer one = lora_batch(1);
    std::vector<float> before(one.ids.size()), fresh(before), with(before), merged(before);
    plain.logprobs(one.view(), before);
    lora.logprobs(one.view(), fresh);
    EXPECT_EQ(before, fresh);
    const LossSum start = lora.evaluate(one.view());
    for (int step = 1; step <= 30; ++step) {
      lora.zero_gradients();
      lora.accumulate(one.view(), 1 / start.weight);
      if (step == 1) {  // B is zero, so A has no gradient, and B has
        EXPECT_EQ(*std::ranges::max_element(lora.changes().at(0, model::Linear::q).a), 0.0f);
        EXPECT_GT(lora.gradient_norm(), 0.0);
      }
      lora.update({.update = step, .rate = 1e-2, .scale = 1.0});
    }
    const LossSum end = lora.evaluate(one.view());
    EXPECT_LT(end.mean(), 0.7 * start.mean()) << model::name(family);
    plain.logprobs(one.view(), fresh);
    EXPECT_EQ(before, fresh);  // the weights are as they were
    lora.logprobs(one.view(), with);
    CpuCompute(std::make_shared<model::WeightSet>(lora.weights()), {}, pool)
        .logprobs(one.view(), merged);
    for (std::size_t t = 0; t < with.size(); ++t) EXPECT_NEAR(with[t], merged[t], 2e-4);
  }
}

// Micro-batches add up, and the state is as small as it should be.
TEST(Lora, MicroBatchesAddUpAndTheStateIsSmall) {
  core::ThreadPool pool(2);
  LoraCompute lora(model::random_weights(lora_config(model::Family::llama), 3), {}, {.rank = 4}, 7,
                   pool);
  const MicroBatchBuffer one = lora_batch(1), two = lora_batch(2);
  lora.zero_gradients();
  lora.accumulate(one.view(), 0.1), lora.accumulate(two.view(), 0.1);
  const model::Adapter both = lora.changes();
  model::Adapter sum = model::zeros_like(both);
  for (const MicroBatchBuffer* batch : {&one, &two}) {
    lora.zero_gradients();
    lora.accumulate(batch->view(), 0.1);
    for (std::size_t i = 0; i < model::linears; ++i) {
      const std::vector<float>& from = lora.changes().layers[1][i].b;
      for (std::size_t j = 0; j < from.size(); ++j) sum.layers[1][i].b[j] += from[j];
    }
  }
  for (std::size_t i = 0; i < model::linears; ++i)
    EXPECT_EQ(both.layers[1][i].b, sum.layers[1][i].b);
  std::size_t tensors = 0, bytes = 0;
  lora.visit([&](const StateTensor& t) { ++tensors, bytes += t.bytes; });
  EXPECT_EQ(tensors,
            3u * 2 * 2 * 7);  // weight and two moments, A and B, two blocks, seven matrices
  EXPECT_EQ(bytes, 12 * static_cast<std::size_t>(lora.trained()));
}

// The gradient of a thinned pass, by finite differences.

/// Loss of the first training pass under dropout, with one number of the state moved; the gradient of that number, too.
std::pair<double, float> thinned_pass(const std::string& name, std::size_t at, float by) {
  core::ThreadPool pool(2);
  const auto weights = model::random_weights(lora_config(model::Family::llama), 3);
  for (const model::Parameter& p : weights->parameters())
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 4.0f : 1.0f;
  LoraCompute lora(weights, {}, {.rank = 4, .alpha = 8}, 7, pool);
  lora.set_dropout(0.3f);
  core::Rng rng(5);
  lora.visit([&](const StateTensor& t) {
    if (t.role != "weight") return;
    std::vector<float> values(t.bytes / sizeof(float));
    for (float& x : values) x = 0.2f * rng.normal();
    if (t.name == name) values[at] += by;
    t.write(std::as_bytes(std::span(values)));
  });
  const MicroBatchBuffer one = lora_batch(1);
  lora.zero_gradients();
  const LossSum sum = lora.accumulate(one.view(), 1.0);
  const model::LowRank& changed = lora.changes().at(0, model::Linear::v);
  return {sum.loss, name.ends_with("a") ? changed.a[at] : changed.b[at]};
}

TEST(Dropout, TheGradientIsThatOfTheThinnedNetwork) {
  for (const char* name : {"layers.0.attn.v.lora_a", "layers.0.attn.v.lora_b"}) {
    constexpr float step = 0.01f;
    const double slope =
        (thinned_pass(name, 5, step).first - thinned_pass(name, 5, -step).first) / (2.0 * step);
    const float gradient = thinned_pass(name, 5, 0.0f).second;
    EXPECT_NEAR(gradient, slope, 0.02 * std::abs(slope) + 1e-3) << name;
    EXPECT_NE(gradient, 0.0f);
  }
}

// On a GPU: gradients beside the CPU's, bits beside the engine's, and exact resumption.
using GpuLoraTest = kernels::gpu::GpuTest;

model::Config gpu_lora_config(model::Family family) {
  model::Config c = lora_config(family);
  c.hidden = 128, c.head_dim = 64, c.heads = 2, c.kv_heads = family == model::Family::gpt2 ? 2 : 1;
  c.ffn = 192;
  return c;
}

/// Gives B numbers, so that everything takes part.
void wake(Compute& compute) {
  core::Rng rng(5);
  compute.visit([&](const StateTensor& t) {
    if (t.role != "weight") return;
    std::vector<float> values(t.bytes / sizeof(float));
    for (float& x : values) x = kernels::to_float(kernels::to_bf16(0.1f * rng.normal()));
    t.write(std::as_bytes(std::span(values)));
  });
}

TEST_F(GpuLoraTest, GradientsAgreeWithTheCpu) {
  for (const auto family : {model::Family::gpt2, model::Family::llama, model::Family::qwen3}) {
    for (const float rate : {0.0f, 0.25f}) {
      const auto weights = model::random_weights(gpu_lora_config(family), 3);
      for (const model::Parameter& p : weights->parameters())
        for (float& x : p.f32())
          x = kernels::to_float(kernels::to_bf16(p.shape.size() == 2 ? 4.0f * x : x));
      const model::AdapterOptions options{.rank = 12, .alpha = 24};
      LoraCompute cpu(weights, {}, options, 7);
      cpu.set_dropout(rate);
      wake(cpu);
      const MicroBatchBuffer one = lora_batch(1), two = lora_batch(2);
      cpu.zero_gradients();
      cpu.accumulate(one.view(), 0.1), cpu.accumulate(two.view(), 0.1);
      for (const auto dtype : {kernels::DType::f32, kernels::DType::bf16}) {
        GpuLoraCompute gpu(weights, {}, options, 7, rate, {.tokens = 32, .dtype = dtype});
        wake(gpu);
        gpu.zero_gradients();
        gpu.accumulate(one.view(), 0.1), gpu.accumulate(two.view(), 0.1);
        const double bound = dtype == kernels::DType::f32 ? 1e-4 : 0.06;
        EXPECT_NEAR(gpu.gradient_norm() / cpu.gradient_norm(), 1.0, bound);
        double difference = 0, norm = 0;
        std::size_t n = 0;
        const std::span<const model::PairTensor> tensors = gpu.adapter().tensors();
        for (std::size_t place = 0; place < 2 * model::linears; ++place) {
          const model::LowRank& pair =
              cpu.changes().layers[place / model::linears][place % model::linears];
          for (const std::vector<float>& want : {pair.a, pair.b}) {
            if (want.empty()) continue;
            const auto have = gpu.adapter().read(model::PairArray::gradients, tensors[n++]);
            ASSERT_EQ(have.size(), want.size());
            for (std::size_t i = 0; i < have.size(); ++i) {
              difference += (double{have[i]} - want[i]) * (double{have[i]} - want[i]);
              norm += double{want[i]} * want[i];
            }
          }
        }
        EXPECT_EQ(n, tensors.size());
        std::printf("%s, dropout %.2f, %s: %.2e of the gradient\n",
                    std::string(model::name(family)).c_str(), static_cast<double>(rate),
                    dtype == kernels::DType::f32 ? "f32" : "bf16", std::sqrt(difference / norm));
        EXPECT_LT(std::sqrt(difference / norm), bound);
      }
    }
  }
}

TEST_F(GpuLoraTest, TrainsAndGoesOnToTheBit) {
  const auto weights = model::random_weights(gpu_lora_config(model::Family::qwen3), 3);
  const auto make = [&] {
    return std::make_unique<GpuLoraCompute>(weights, ComputeOptions{},
                                            model::AdapterOptions{.rank = 8}, 7, 0.1f,
                                            GpuComputeOptions{.tokens = 32});
  };
  const auto step = [](Compute& compute, int update) {
    const MicroBatchBuffer batch = lora_batch(1);
    compute.zero_gradients();
    compute.accumulate(batch.view(), 0.05);
    compute.update({.update = update, .rate = 1e-2, .scale = 1.0});
  };
  const auto whole = make(), parts = make();
  const MicroBatchBuffer batch = lora_batch(1);
  const double before = whole->evaluate(batch.view()).mean();
  for (int i = 1; i <= 20; ++i) step(*whole, i);
  EXPECT_LT(whole->evaluate(batch.view()).mean(), 0.9 * before);
  for (int i = 1; i <= 9; ++i) step(*parts, i);
  std::vector<std::vector<std::byte>> state;
  parts->visit([&](const StateTensor& t) { t.read(state.emplace_back(t.bytes)); });
  const auto again = make();
  std::size_t next = 0;
  again->visit([&](const StateTensor& t) { t.write(state[next++]); });
  for (int i = 10; i <= 20; ++i) step(*again, i);
  for (const model::PairTensor& t : whole->adapter().tensors())
    kernels::gpu::expect_same_bits(again->adapter().read(model::PairArray::masters, t),
                                   whole->adapter().read(model::PairArray::masters, t), t.name);
}

TEST_F(GpuLoraTest, AddsWhatTheServingKernelAdds) {
  const model::Config config = gpu_lora_config(model::Family::llama);
  core::Rng rng(9);
  model::Adapter pair = model::fresh_adapter(config, {.rank = 8, .targets = {model::Linear::o}}, 1);
  for (model::LayerAdapter& layer : pair.layers)
    for (float& x : layer[3].b) x = rng.normal();
  for (model::LayerAdapter& layer : pair.layers)
    for (std::vector<float>* values : {&layer[3].a, &layer[3].b})
      for (float& x : *values) x = kernels::to_float(kernels::to_bf16(x));
  constexpr std::int64_t tokens = 37;
  model::GpuTrainedAdapter ours(config, pair, kernels::DType::bf16, tokens);
  std::vector<float> x(tokens * 128), y(tokens * 128);
  for (float& value : x) value = rng.normal();
  for (float& value : y) value = rng.normal();
  using kernels::gpu::DeviceMatrix;
  const auto matrix = [&](const std::vector<float>& v) {
    return DeviceMatrix::of(v, tokens, 128, kernels::DType::bf16, {});
  };
  const DeviceMatrix from = matrix(x), mine = matrix(y), theirs = matrix(y);
  ours.forward(1, model::BlockProduct::o, from.view(), mine.view(), {});
  model::GpuAdapters served(config, 1, 8, tokens);
  served.set(0, &pair);
  const std::array<std::int32_t, 2> offsets{0, tokens};
  const auto on_device = kernels::gpu::Buffer::of(std::span<const std::int32_t>(offsets));
  served.add(1, model::Linear::o, from.view(), theirs.view(), on_device.as<std::int32_t>(), {});
  kernels::gpu::synchronize({});
  kernels::gpu::expect_same_bits(mine.values(), theirs.values(), "beside the served adapter");
}

}  // namespace
}  // namespace rose::trainer
