// Time masks along walks through three languages.

#include <chrono>

#include "benchmarks/harness/bench.h"
#include "rose/app/models.h"
#include "rose/core/rng.h"
#include "rose/infer/structured.h"
#include "rose/model/files/checkpoint.h"

namespace {

constexpr const char* form = R"({"type": "object", "properties": {
  "id": {"type": "string", "format": "uuid"}, "name": {"type": "string", "minLength": 1},
  "email": {"type": "string", "format": "email"}, "age": {"type": "integer", "minimum": 0,
  "maximum": 150}, "height": {"type": "number", "minimum": 0.3, "maximum": 2.8},
  "state": {"enum": ["new", "active", "gone"]}, "since": {"type": "string", "format": "date"},
  "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5},
  "notes": {"type": ["string", "null"]}, "address": {"type": "object", "properties": {
  "street": {"type": "string"}, "city": {"type": "string"}, "zip": {"type": "string",
  "pattern": "^[0-9]{5}$"}}, "required": ["street", "city"]}, "ok": {"type": "boolean"}},
  "required": ["id", "name", "email", "age", "state", "tags", "address"]})";

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rose;
  const auto checkpoint = model::open_checkpoint(argc > 1 ? argv[1] : "");
  const auto trie = std::make_shared<infer::TokenTrie>(app::load_tokenizer(checkpoint));
  const auto grammar = infer::schema_grammar(form, trie);
  grammar->prepare(core::default_pool());
  std::vector<std::uint32_t> words(static_cast<std::size_t>(trie->vocab_size()) / 32 + 1);
  core::Rng rng(1);
  return bench::run(argc, argv, {.metric = "time", .unit = "us", .better = "lower"}, [&] {
    const auto state = grammar->start();
    double total = 0.0;
    int masks = 0;
    while (!state->must_end() && masks < 400) {
      const auto start = std::chrono::steady_clock::now();
      state->mask(words);
      total += microseconds_since(start);
      ++masks;
      std::vector<std::int32_t> ids;
      for (std::int32_t v = 0; v < trie->vocab_size(); ++v)
        if ((words[static_cast<std::size_t>(v) / 32] >> v % 32 & 1) != 0) ids.push_back(v);
      state->accept(ids[rng.below(static_cast<std::uint32_t>(ids.size()))]);
    }
    return total / masks;
  });
}
