// One chapter as the tool sees it: front matter and fences. A pure function of the bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attributes.h"
#include "diagnostics.h"
#include "fence.h"
#include "source.h"
#include "yaml.h"

namespace tangle {

/// What a fence is for.
enum class Role : std::uint8_t {
  listing,   ///< a plain fence: transcripts, outputs, other people's text
  code,      ///< part of the program
  test,      ///< in the chapter's test file
  bench,     ///< a program that measures
  example,   ///< a program that must compile
  fail,      ///< a program that must not compile
  exercise,  ///< the stub that a reader fills in
  solution,  ///< what passes the exercise's test
  output,    ///< what an example prints
  sketch,    ///< shown, not built
  table,     ///< a ```bench fence: shows a bench's last result
};

std::string_view role_name(Role role);

/// A whole line `<<id>>` in the body of a fence.
struct Reference {
  std::string_view id;
  Span span;                 ///< from `<<` to `>>`
  std::uint32_t line = 0;    ///< offset of the line's first byte
  std::uint32_t number = 0;  ///< index of the line in the body, from 0
  std::uint32_t indent = 0;  ///< bytes before `<<`, the fence's own indentation removed
};

struct Fence {
  Role role = Role::listing;
  bool append = false;   ///< continues a chunk of an earlier chapter
  bool replace = false;  ///< supersedes a chunk of an earlier chapter
  bool plain = false;    ///< the title does not become a comment
  bool faulty = false;   ///< its attributes were refused, so what follows from them is not reported
  std::string_view language;
  Attributes attributes;
  FenceLines lines;
  Span info;
  Span body;
  std::vector<Reference> references;

  std::string_view id() const { return attributes.id; }
  std::string_view title() const { return attributes.value("title"); }
  /// What names the file that this code becomes, or null.
  const KeyValue* file() const { return role == Role::code ? attributes.find("file") : nullptr; }
  std::uint32_t body_line() const { return lines.line + 1; }
  /// Where a message about this fence points.
  Span place() const { return attributes.id.empty() ? info : attributes.id_span; }
};

struct Document {
  const Source* source = nullptr;
  std::string_view name;  ///< "1-foundations/05-tokenization"
  bool has_front = false;
  YamlNode front;
  std::vector<Fence> fences;
};

/// Reads any bytes. Messages go to `diagnostics`; what could be read is returned all the same.
Document parse_document(const Source& source, std::string_view name, Diagnostics& diagnostics);

/// Decides `fence.role` and its flags from classes and keys, and refuses what does not fit.
void classify(Fence& fence, Diagnostics& diagnostics);

}  // namespace tangle
