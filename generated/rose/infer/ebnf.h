// Make a language of a grammar.

#pragma once

#include <string_view>

#include "rose/infer/language.h"

namespace rose::infer {

/// Adds the grammar's rules and gives back `root`. Throws core::Error (invalid_argument) with line
/// and column.
Language::Rule ebnf(Language& language, std::string_view grammar);

}  // namespace rose::infer
