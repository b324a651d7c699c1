// Time the masks along one document.

#include <chrono>

#include "benchmarks/harness/bench.h"
#include "rose/app/models.h"
#include "rose/core/error.h"
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

constexpr const char* filled = R"({"id": "123e4567-e89b-12d3-a456-426614174000",
 "name": "Ada Lovelace", "email": "ada@example.org", "age": 36, "height": 1.65, "state": "active",
 "since": "1835-07-08", "tags": ["mathematics", "engines", "notes"], "notes": "The Analytical
 Engine weaves algebraic patterns just as the loom weaves flowers and leaves.", "address":
 {"street": "12 St James's Square", "city": "London", "zip": "10001"}, "ok": true})";

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rose;
  using Clock = std::chrono::steady_clock;
  const auto checkpoint = model::open_checkpoint(argc > 1 ? argv[1] : app::find_model("").string());
  const auto tokenizer = app::load_tokenizer(checkpoint);
  const auto trie = std::make_shared<infer::TokenTrie>(tokenizer);
  auto start = Clock::now();
  const auto grammar = infer::schema_grammar(form, trie);
  const double compile_ms = microseconds_since(start) / 1000;
  start = Clock::now();
  grammar->prepare(core::default_pool());
  const double masks_ms = microseconds_since(start) / 1000;

  std::string document = filled;  // the source is wrapped, the document is not
  std::erase(document, '\n');
  const auto tokens = tokenizer.encode(document, false);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(trie->vocab_size()) / 32 + 1);
  const bench::About about{.metric = "time",
                           .unit = "us",
                           .better = "lower",
                           .extra = {{"config",
                                      {{"vocabulary", trie->vocab_size()},
                                       {"tokens", tokens.size()},
                                       {"states", grammar->automaton().size()},
                                       {"masks", grammar->mask_classes()},
                                       {"compile_ms", compile_ms},
                                       {"masks_ms", masks_ms}}}}};
  return bench::run(argc, argv, about, [&] {
    const auto state = grammar->start();
    double total = 0.0;
    for (const std::int32_t token : tokens) {
      const auto before = Clock::now();
      state->mask(words);
      total += microseconds_since(before);
      if (!state->accept(token)) throw core::Error(core::Code::internal, "the form was refused");
    }
    return total / static_cast<double>(tokens.size());
  });
}
