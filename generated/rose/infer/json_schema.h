// Make a language of a JSON schema.

#pragma once

#include "rose/core/json.h"
#include "rose/infer/language.h"

namespace rose::infer {

struct JsonStyle {
  bool spaces = true;    ///< white space between tokens may be written
  int most_indent = 32;  ///< spaces after a line break
};

/// Adds rules for the documents that the schema admits, and gives back the first. Throws core::Error:
/// invalid_argument for a schema that is none or that nothing satisfies, unsupported for a keyword
/// that cannot be guaranteed, each with the place in the schema.
Language::Rule json_schema(Language& language, const core::json::value& schema,
                           const JsonStyle& style = {});

}  // namespace rose::infer
