// Pandoc attributes of a fence: `{#id .class key=value key="quoted value"}`.
#pragma once

#include <string_view>
#include <vector>

#include "diagnostics.h"
#include "source.h"

namespace tangle {

struct ClassName {
  std::string_view name;  ///< without the dot
  Span span;
};

struct KeyValue {
  std::string_view key;
  std::string_view value;  ///< without its quotes
  Span span;               ///< of key and value
  Span value_span;         ///< of the value, without its quotes
};

struct Attributes {
  Span span;  ///< from brace to brace
  std::string_view id;
  Span id_span;
  std::vector<ClassName> classes;
  std::vector<KeyValue> pairs;

  const KeyValue* find(std::string_view key) const;
  std::string_view value(std::string_view key) const;  ///< empty when absent
};

/// Reads the attributes that begin at the `{` at the start of `span`, which reaches to the end of the line. The id may have
/// dots if `dots` says so.
Attributes parse_attributes(Span span, bool dots, Diagnostics& diagnostics);

}  // namespace tangle
