// The engine behind a pipe, for the oracle tests, which are in Python.
//
//   engine_tool MODEL [random]     lines of JSON in, as many lines out, in the same order
//
// {"ids": [int…], "max_tokens": n} asks for the greedy answer; "temperature", "seed" and "schema" change that. The answer is
// {"ids": [int…], "text": string, "finish": string, "error": string or null}. All requests run together. With "random" the
// model is a small one with random weights for MODEL's vocabulary.
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rose/app/models.h"
#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/engine.h"
#include "rose/infer/structured.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/weights.h"

namespace {

using namespace rose;
namespace json = core::json;

struct Answer {
  json::array ids;
  std::string text, finish;
  json::value error;
};

std::shared_ptr<const model::WeightSet> small_weights(std::int64_t vocab) {
  model::Config c;
  c.family = model::Family::llama;
  c.vocab_size = vocab, c.layers = 1, c.heads = 2, c.kv_heads = 1, c.head_dim = 16;
  c.hidden = 32, c.ffn = 32, c.max_positions = 2048, c.tied_head = true;
  c.eos_ids = {0};
  auto weights = model::random_weights(c, 5);
  for (const model::Parameter& p : weights->parameters())
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 8.0f : 1.0f;
  return weights;
}

infer::Request request_of(const json::object& asked, const infer::TriePtr& trie, Answer& answer) {
  infer::Request r;
  for (const json::value& id : asked.at("ids").as_array())
    r.prompt.push_back(static_cast<std::int32_t>(id.to_number<std::int64_t>()));
  r.sampling.max_tokens = core::get_int_or(asked, "max_tokens", 16, "request");
  r.sampling.seed = static_cast<std::uint64_t>(core::get_int_or(asked, "seed", 1, "request"));
  r.sampling.temperature = static_cast<float>(
      asked.contains("temperature") ? asked.at("temperature").to_number<double>() : 0.0);
  r.sampling.ignore_eos = !asked.contains("schema");
  if (asked.contains("schema"))
    r.sampling.grammar = infer::schema_grammar(core::get_string(asked, "schema", "request"), trie);
  r.on_event = [&answer](const infer::Event& e) {
    for (const std::int32_t id : e.tokens) answer.ids.emplace_back(id);
    answer.text += e.text;
    if (e.finish) answer.finish = infer::name(*e.finish);
    if (e.error != nullptr) answer.error = e.error->what();
  };
  return r;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto checkpoint = model::open_checkpoint(argc > 1 ? argv[1] : "");
  const bool random = argc > 2;
  std::optional<text::Tokenizer> tokenizer;
  infer::TriePtr trie;
  if (random || checkpoint.format == model::Format::gguf) {
    tokenizer = app::load_tokenizer(checkpoint);
    trie = std::make_shared<infer::TokenTrie>(*tokenizer);
  }
  auto weights = random ? small_weights(checkpoint.config.vocab_size) : load_weights(checkpoint);
  infer::Engine engine(
      infer::make_cpu_runner(std::move(weights),
                             {.max_tokens = 256, .max_sequences = 32, .positions = 1024}),
      {.max_chunk = 64, .drafts = 4}, tokenizer);
  std::cerr << "the model is there" << std::endl;
  std::vector<std::unique_ptr<Answer>> answers;
  for (std::string line; std::getline(std::cin, line);) {
    Answer& answer = *answers.emplace_back(std::make_unique<Answer>());
    try {
      engine.submit(request_of(core::parse_json(line, "request").as_object(), trie, answer));
    } catch (const core::Error& e) {
      answer.finish = core::name(e.code()), answer.error = e.what();
    }
  }
  engine.run();
  for (const auto& a : answers) {
    const json::object out{
        {"ids", a->ids}, {"text", a->text}, {"finish", a->finish}, {"error", a->error}};
    std::cout << json::serialize(out) << '\n';
  }
  const infer::Statistics s = engine.control().statistics();
  std::cerr << json::serialize(json::object{
                   {"steps", s.steps}, {"drafted", s.drafted}, {"right", s.drafts_right}})
            << '\n';
} catch (const rose::core::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
