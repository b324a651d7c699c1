// What the program becomes: files with their text, and for each line where it came from.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "diagnostics.h"
#include "program.h"

namespace tangle {

/// Consecutive output lines with one origin.
struct Run {
  enum class Kind : std::uint8_t {
    body,   ///< lines of a chunk part, one to one
    title,  ///< the comment made from a part's title
    frame,  ///< made by the tool: includes, namespaces, separating blank lines
  };
  static constexpr std::uint32_t no_part = ~0u;

  std::uint32_t line = 0;   ///< first output line, from 1
  std::uint32_t lines = 0;  ///< how many
  Kind kind = Kind::frame;
  std::uint32_t chunk = no_part;    ///< index into Program::chunks
  std::uint32_t part = 0;           ///< index into Chunk::parts
  std::uint32_t source_line = 0;    ///< chapter line of the first output line, from 1
  std::uint32_t source_offset = 0;  ///< and its byte offset
  std::int32_t column_delta = 0;    ///< output column = chapter column + delta, on lines that are not blank
};

/// Runs in order of `line`, without gaps or overlaps; together they cover the output.
using SourceMap = std::vector<Run>;

enum class OutputKind : std::uint8_t { source, test, example, expected, fail, exercise, solution, bench, list };
std::string_view kind_name(OutputKind kind);

struct Output {
  OutputKind kind = OutputKind::source;
  std::string path;           ///< relative to the output folder
  std::string_view id;        ///< chunk, example, bench or exercise id; of a test, the chapter's name
  std::uint32_t chapter = 0;  ///< where it begins
  Span place;                 ///< where its name is written, for messages
  std::string text;
  SourceMap map;

  std::uint32_t lines() const { return map.empty() ? 0 : map.back().line + map.back().lines - 1; }
};

/// A place in a chapter that an output line came from.
struct Origin {
  const Run* run = nullptr;            ///< null when there is none
  const Document* document = nullptr;  ///< null for lines that the tool made
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

/// Where output line `line` (and column, 0 when unknown), both from 1, came from.
Origin origin_of(const Program& program, const Output& output, std::uint32_t line, std::uint32_t column);

/// Every output, sorted by path; the last is `outputs.cmake`. Paths are checked; texts are not when
/// `diagnostics` has errors already.
std::vector<Output> produce(const Program& program, Diagnostics& diagnostics);

/// A GoogleTest source with `chunks` in order, each inside its namespace, or `otherwise` where it names none.
void test_file(const Program& program, Output& output, const std::vector<std::uint32_t>& chunks,
               std::string_view otherwise = {});

/// `outputs.cmake`: the outputs by kind, so that CMake runs again only when the set changes.
std::string outputs_cmake(const Program& program, const std::vector<Output>& outputs);

/// The paths of all files that an `outputs.cmake` lists; those that could not be outputs are left out.
std::set<std::string> listed_files(std::string_view outputs_cmake);

/// Why `path` cannot name an output, or an empty string.
std::string path_objection(std::string_view path);

/// Refuses bad paths, two outputs with one path, paths that differ in case alone, a file where a folder is.
void check_paths(const std::vector<Output>& outputs, Diagnostics& diagnostics);

/// Rewrites C++ and CUDA outputs so that each line says which chapter line it is. `folder` is where they
/// will lie; paths in the `#line` directives are absolute. The source maps no longer apply afterwards.
void add_line_directives(const Program& program, const std::string& folder, std::vector<Output>& outputs);

/// The model as a public, versioned format, documented in chapter 0/04; and the source maps alone.
constexpr int book_json_version = 1;
/// How Pandoc reads a chapter: the one place that says it. `~` and `^` stay themselves, as on the forge.
constexpr std::string_view pandoc_reader = "commonmark_x-subscript-superscript";
std::string book_json(const Program& program, const std::vector<Output>& outputs);
std::string source_map_json(const Program& program, const std::vector<Output>& outputs);

}  // namespace tangle
