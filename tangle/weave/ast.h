// Pandoc's syntax tree: {"t": tag, "c": content}. Small makers and readers of its nodes.
#pragma once

#include <string>
#include <string_view>

#include "json.h"

namespace weave::ast {

inline std::string_view tag(const json::value& node) {
  return node.is_object() ? text(node.get_object(), "t") : std::string_view{};
}

inline json::value& content(json::value& node) { return node.get_object()["c"]; }
inline const json::value& content(const json::value& node) { return node.get_object().at("c"); }

inline json::value node(std::string_view tag, json::value content) {
  return json::object{{"t", tag}, {"c", std::move(content)}};
}
inline json::value str(std::string_view words) { return node("Str", json::value(words)); }
inline json::value space() { return json::object{{"t", "Space"}}; }
inline json::value raw_inline(std::string_view html) { return node("RawInline", json::array{"html", html}); }
inline json::value raw_block(std::string_view html) { return node("RawBlock", json::array{"html", html}); }
inline json::array attributes(std::string_view id, std::string_view name = {}) {
  return {id, name.empty() ? json::array{} : json::array{name}, json::array{}};
}

/// Attributes of Div, Span, CodeBlock, Header.
inline std::string_view id_of(const json::value& attributes) { return view(attributes.as_array()[0].as_string()); }
bool has_class(const json::value& attributes, std::string_view name);
std::string_view key_of(const json::value& attributes, std::string_view key);

/// Calls `use(node)` for every node, outer ones first.
template <class Use>
void walk(const json::value& value, const Use& use) {
  if (value.is_array()) {
    for (const json::value& each : value.get_array()) walk(each, use);
  } else if (value.is_object()) {
    if (value.get_object().contains("t")) use(value);
    if (const json::value* inside = value.get_object().if_contains("c")) walk(*inside, use);
  }
}

/// The words of some inlines: no markup, mathematics as TeX.
std::string plain(const json::value& inlines);

}  // namespace weave::ast
