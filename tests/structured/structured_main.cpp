// Structured output behind a pipe, for the oracle test, which is in Python.
//
//   structured_tool MODEL       a line of JSON in, a line of JSON out
//
// {"schema": "…"} or {"regex": "…"} or {"ebnf": "…"}, with "walks" (how many random texts), "seed", and "texts" (which of
// them are in the language?). The answer is {"texts": [bool…], "walks": [string…], "states": n, "masks": mismatches} or
// {"error": code, "argument": …, "message": …}. A walk draws at random from the mask and closes what is open after a while.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "rose/app/models.h"
#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/infer/structured.h"
#include "rose/model/files/checkpoint.h"

namespace {

using namespace rose;
namespace json = core::json;

struct Tool {
  text::Tokenizer tokenizer;
  std::shared_ptr<const infer::TokenTrie> trie;
  std::vector<std::uint32_t> words;
  std::vector<std::int32_t> bytes;  // tokens of one byte

  bool allowed(std::int32_t id) const {
    return (words[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) != 0;
  }

  std::string walk(const infer::ByteGrammar& grammar, core::Rng& rng, std::int64_t& mismatches) {
    const auto state = grammar.start();
    std::string text;
    const int calm = 20 + static_cast<int>(rng.below(60));
    const int compared = static_cast<int>(rng.below(30));
    for (int step = 0; !state->must_end() && step < 4000; ++step) {
      if (state->can_end() && rng.below(3) == 0) break;
      state->mask(words);
      std::vector<std::int32_t> ids, closing, single;
      for (std::size_t w = 0; w < words.size(); ++w)
        for (std::uint32_t left = words[w]; left != 0; left &= left - 1)
          ids.push_back(static_cast<std::int32_t>(w * 32) + std::countr_zero(left));
      if (step > calm) {
        for (const std::int32_t v : bytes) {
          if (!allowed(v)) continue;
          single.push_back(v);
          if (std::string_view("\"]}0").find(trie->bytes(v)[0]) != std::string_view::npos)
            closing.push_back(v);
        }
      }
      if (step == compared) {
        for (std::int32_t v = 0; v < trie->vocab_size(); v += 1 + static_cast<int>(rng.below(60)))
          mismatches += state->clone()->accept(v) != allowed(v) ? 1 : 0;
      }
      if (step > calm && !single.empty())
        ids = closing.empty() || rng.below(3) == 0 ? single : closing;
      if (ids.empty()) return text + "<stuck>";
      const std::int32_t id = ids[rng.below(static_cast<std::uint32_t>(ids.size()))];
      if (!state->accept(id)) return text + "<mask and accept differ>";
      text += trie->bytes(id);
    }
    return state->can_end() ? text : text + "<endless>";
  }

  json::object answer(const json::object& asked) {
    std::shared_ptr<const infer::ByteGrammar> grammar;
    const auto text_of = [&](const char* key) { return core::get_string(asked, key, "request"); };
    if (asked.contains("schema")) grammar = infer::schema_grammar(text_of("schema"), trie);
    if (asked.contains("regex")) grammar = infer::regex_grammar(text_of("regex"), trie);
    if (asked.contains("ebnf")) grammar = infer::ebnf_grammar(text_of("ebnf"), trie);
    json::array texts, walks;
    if (const json::value* list = asked.if_contains("texts"))
      for (const json::value& t : list->get_array()) {
        const auto state = grammar->start();
        bool in = true;
        for (const std::int32_t id : tokenizer.encode(t.get_string(), false))
          in = in && state->accept(id);
        texts.emplace_back(in && state->can_end());
      }
    core::Rng rng(static_cast<std::uint64_t>(core::get_int_or(asked, "seed", 1, "request")));
    std::int64_t mismatches = 0;
    for (auto n = core::get_int_or(asked, "walks", 0, "request"); n > 0; --n)
      walks.emplace_back(walk(*grammar, rng, mismatches));
    return {{"texts", texts},
            {"walks", walks},
            {"states", grammar->automaton().size()},
            {"masks", mismatches}};
  }
};

}  // namespace

int main(int argc, char** argv) {
  const auto checkpoint = model::open_checkpoint(argc > 1 ? argv[1] : "");
  Tool tool{app::load_tokenizer(checkpoint), nullptr, {}, {}};
  tool.trie = std::make_shared<infer::TokenTrie>(tool.tokenizer);
  tool.words.resize(static_cast<std::size_t>(tool.trie->vocab_size()) / 32 + 1);
  for (std::int32_t v = 0; v < tool.trie->vocab_size(); ++v)
    if (tool.trie->bytes(v).size() == 1) tool.bytes.push_back(v);
  for (std::string line; std::getline(std::cin, line);) {
    json::object out;
    try {
      out = tool.answer(core::parse_json(line, "request").as_object());
    } catch (const core::Error& e) {
      out = {{"error", core::name(e.code())}, {"argument", e.argument()}, {"message", e.message()}};
    }
    std::cout << json::serialize(out) << std::endl;
  }
}
