// Write 256 documents, with a schema and without.

#include <string>

#include "labs/inference/requests.h"
#include "rose/infer/structured.h"

namespace {

using namespace rose;

constexpr std::int32_t vocabulary = 151'936;
constexpr std::size_t streams = 256, prompt = 64;
constexpr std::int64_t answer = 200;

text::Tokenizer made_up_tokenizer() {
  text::Vocab vocab;
  for (int b = 0; b < 256; ++b) vocab.tokens.emplace_back(1, static_cast<char>(b));
  for (const char* piece :
       {"{\"", "\":", "\": ", "\": \"", "\",", "\", \"", "\"}", "\"},", "},", "}}", ": ", ", ",
        "\",\"", "\":\"", "true", "false", "null", "],", "[]"})
    vocab.tokens.emplace_back(piece);
  core::Rng rng(4);
  while (vocab.tokens.size() < vocabulary) {
    std::string word = rng.below(2) == 0 ? " " : "";
    for (std::uint32_t n = 2 + rng.below(7); n > 0; --n)
      word += static_cast<char>(rng.below(20) == 0 ? '0' + rng.below(10) : 'a' + rng.below(26));
    vocab.tokens.push_back(std::move(word));
  }
  return text::Tokenizer(std::move(vocab));
}

std::string many_records() {
  std::string names, members;
  for (int i = 0; i < 12; ++i) {
    const std::string name = "\"record_" + std::to_string(i) + "\"";
    names += (i > 0 ? ", " : "") + name;
    members += (i > 0 ? ", " : "") + name + R"(: {"$ref": "#/$defs/record"})";
  }
  return R"({"$defs": {"record": {"type": "object", "properties": {
      "name": {"type": "string", "minLength": 5, "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "state": {"enum": ["new", "active", "gone"]}, "since": {"type": "string", "format": "date"},
      "height": {"type": "number"}, "ok": {"type": "boolean"}},
      "required": ["name", "age", "state", "since", "height", "ok"]}}, "type": "object", "properties": {)" +
         members + R"(}, "required": [)" + names + "]}";
}

std::vector<infer::Request> requests(const std::shared_ptr<const infer::Grammar>& grammar) {
  core::Rng rng(5);
  std::vector<infer::Request> all(streams);
  for (infer::Request& r : all) {
    r.prompt.resize(prompt);
    for (auto& id : r.prompt) id = static_cast<std::int32_t>(rng.below(vocabulary));
    r.sampling.temperature = 1.0f;
    r.sampling.max_tokens = answer;
    r.sampling.ignore_eos = grammar == nullptr;  // the shortest document is longer
    r.sampling.grammar = grammar;
    r.text = false;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (labs::no_gpu("engine-schema-cost")) return 1;
  const auto trie = std::make_shared<infer::TokenTrie>(made_up_tokenizer());
  const auto grammar = infer::schema_grammar(many_records(), trie);
  grammar->prepare(core::default_pool());
  infer::Engine engine(
      labs::qwen3_runner({.tokens = 8192, .sequences = streams, .positions = 512, .pages = 10'000}),
      {.prefix_caching = false, .seed = 1});
  return bench::run(
      argc, argv,
      {.metric = "cost",
       .unit = "%",
       .better = "lower",
       .extra = {{"config", labs::qwen3_record({{"streams", streams},
                                                {"prompt", prompt},
                                                {"answer", answer},
                                                {"states", grammar->automaton().size()},
                                                {"masks", grammar->mask_classes()}})},
                 {"seed", 1}},
       .samples = 5,
       .warmup = 1},
      [&] {
        const std::int64_t before = engine.control().statistics().answer_tokens;
        const double free = labs::answer(engine, requests(nullptr)),
                     bound = labs::answer(engine, requests(grammar));
        const std::int64_t tokens = engine.control().statistics().answer_tokens - before;
        if (tokens != 2 * answer * static_cast<std::int64_t>(streams))
          std::fprintf(stderr, "the sides differ: %lld tokens in all\n",
                       static_cast<long long>(tokens));
        return 100.0 * (1.0 - bound / free);
      });
}
