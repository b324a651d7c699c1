// Compile what a request may ask for.

#pragma once

#include <memory>
#include <string_view>

#include "rose/infer/byte_grammar.h"
#include "rose/infer/json_schema.h"

namespace rose::infer {

using TriePtr = std::shared_ptr<const TokenTrie>;

// Each throws core::Error for this request alone; call them on the thread that takes requests in.
std::shared_ptr<const ByteGrammar> schema_grammar(std::string_view schema, const TriePtr& trie,
                                                  const JsonStyle& style = {});
std::shared_ptr<const ByteGrammar> object_grammar(const TriePtr& trie);  ///< any JSON object
std::shared_ptr<const ByteGrammar> regex_grammar(std::string_view pattern, const TriePtr& trie);
std::shared_ptr<const ByteGrammar> ebnf_grammar(std::string_view grammar, const TriePtr& trie);
std::shared_ptr<const ByteGrammar> choice_grammar(const std::vector<std::string>& texts,
                                                  const TriePtr& trie);

}  // namespace rose::infer
