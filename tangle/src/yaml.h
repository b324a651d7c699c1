// The subset of YAML that front matter and book.yaml use, read so that Pandoc reads the same:
// maps, block lists of scalars or maps, flow lists of scalars, plain and quoted scalars, comments.
#pragma once

#include <string>
#include <vector>

#include "diagnostics.h"
#include "source.h"

namespace tangle {

struct YamlNode {
  enum class Kind { null, scalar, list, map } kind = Kind::null;
  Span span;                    ///< of the scalar, or of the place where the value begins
  std::string scalar;           ///< unquoted
  std::vector<YamlNode> items;  ///< of a list, or the values of a map
  std::vector<YamlNode> keys;   ///< of a map, beside items

  const YamlNode* find(std::string_view key) const;
  std::string_view text(std::string_view key) const;  ///< scalar value of a key, or empty
  /// Scalars of the list under `key`; a lone scalar counts as a list of one.
  std::vector<const YamlNode*> list(std::string_view key) const;
};

/// Reads the lines of `span` as one map.
YamlNode parse_yaml(Span span, Diagnostics& diagnostics);

}  // namespace tangle
