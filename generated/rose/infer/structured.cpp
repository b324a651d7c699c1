// Compile what a request may ask for.

#include "rose/infer/structured.h"

#include "rose/core/json.h"
#include "rose/infer/ebnf.h"
#include "rose/infer/regex.h"

namespace rose::infer {

std::shared_ptr<const ByteGrammar> schema_grammar(std::string_view schema, const TriePtr& trie,
                                                  const JsonStyle& style) {
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  const core::json::value parsed = core::parse_json(schema, "schema", {.bytes = most_bytes});
  Language language;
  return compile(language, json_schema(language, parsed, style), trie);
}

std::shared_ptr<const ByteGrammar> object_grammar(const TriePtr& trie) {
  Language language;
  const core::json::object schema{{"type", "object"}};
  return compile(language, json_schema(language, schema), trie);
}

std::shared_ptr<const ByteGrammar> regex_grammar(std::string_view pattern, const TriePtr& trie) {
  Language language;
  const Language::Rule root = language.rule("pattern");
  language.define(root, regex(language, pattern, Spelling::utf8, true));
  return compile(language, root, trie);
}

std::shared_ptr<const ByteGrammar> ebnf_grammar(std::string_view grammar, const TriePtr& trie) {
  Language language;
  return compile(language, ebnf(language, grammar), trie);
}

std::shared_ptr<const ByteGrammar> choice_grammar(const std::vector<std::string>& texts,
                                                  const TriePtr& trie) {
  Language language;
  const Language::Rule root = language.rule("choice");
  std::vector<Language::Expression> parts;
  parts.reserve(texts.size());
  for (const std::string& text : texts) parts.push_back(language.literal(text));
  language.define(root, language.choice(std::move(parts)));
  return compile(language, root, trie);
}

}  // namespace rose::infer
