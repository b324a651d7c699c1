#include "ast.h"

namespace weave::ast {

bool has_class(const json::value& attributes, std::string_view name) {
  for (const json::value& each : attributes.as_array()[1].as_array())
    if (view(each.as_string()) == name) return true;
  return false;
}

std::string_view key_of(const json::value& attributes, std::string_view key) {
  for (const json::value& each : attributes.as_array()[2].as_array())
    if (view(each.as_array()[0].as_string()) == key) return view(each.as_array()[1].as_string());
  return {};
}

std::string plain(const json::value& inlines) {
  std::string words;
  for (const json::value& each : inlines.as_array()) {
    const std::string_view kind = tag(each);
    if (kind == "Str") {
      words += view(content(each).as_string());
    } else if (kind == "Space" || kind == "SoftBreak" || kind == "LineBreak") {
      words += ' ';
    } else if (kind == "Code" || kind == "Math" || kind == "RawInline") {
      if (kind != "RawInline") words += view(content(each).as_array()[1].as_string());
    } else if (kind == "Quoted" || kind == "Link" || kind == "Span" || kind == "Image" || kind == "Cite") {
      const bool quoted = kind == "Quoted";
      if (quoted) words += "“";
      words += plain(content(each).as_array()[1]);
      if (quoted) words += "”";
    } else if (kind != "Note" && each.as_object().contains("c")) {
      words += plain(content(each));
    }
  }
  return words;
}

}  // namespace weave::ast
