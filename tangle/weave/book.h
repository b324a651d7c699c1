// The book as `tangle book-json` publishes it: parts, chapters, fences, chunks, outputs with their source maps.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "diagnostics.h"
#include "json.h"
#include "source.h"

namespace weave {

struct Reference {
  std::string id;
  std::uint32_t line = 0;  ///< of the chapter, from 1
};

struct Fence {
  std::string role, language, id, title, file;
  json::object attributes;  ///< everything that book.json says of it
  bool append = false, replace = false;
  std::uint32_t line = 0;  ///< of the opening fence, from 1
  std::uint32_t begin = 0, body_begin = 0, body_end = 0, indent = 0;
  std::vector<Reference> references;
  std::uint32_t chunk = none;  ///< which chunk it is a part of
  std::uint32_t part = 0;      ///< and which part of it

  static constexpr std::uint32_t none = UINT32_MAX;
};

struct Chapter {
  std::string name;  ///< "1-foundations/09-attention"
  const tangle::Source* source = nullptr;
  json::object front;
  std::string title;
  std::string number;      ///< "1.9"
  std::uint32_t part = 0;  ///< index of the part
  std::vector<Fence> fences;

  std::string page() const { return name + ".html"; }
};

struct Part {
  std::string id, title, number;
  std::vector<std::uint32_t> chapters;
};

struct ChunkPart {
  std::uint32_t chapter = 0, fence = 0;
  bool live = true;
};

/// Where a part of a chunk stands in a file.
struct Landing {
  std::uint32_t output = 0, line = 0;
};

struct Chunk {
  std::string id, role, file;
  std::vector<ChunkPart> parts;
  std::vector<std::uint32_t> used_by;
  std::vector<Landing> landings;  ///< of its first part, in every file that holds it
};

/// Consecutive lines of an output that come from one place.
struct Run {
  std::uint32_t line = 0, lines = 0;
  std::uint32_t chunk = Fence::none, part = 0;
  bool body = false;
  std::uint32_t source_line = 0;
};

struct Output {
  std::string path, kind;
  std::vector<Run> runs;
};

struct Book {
  std::string title, reader;
  std::deque<tangle::Source> sources;
  std::vector<Part> parts;
  std::vector<Chapter> chapters;
  std::vector<Chunk> chunks;
  std::vector<Output> outputs;
  std::unordered_map<std::string_view, std::uint32_t> chapter_by_name, chunk_by_id, output_by_path;

  const Fence& fence(const ChunkPart& part) const { return chapters[part.chapter].fences[part.fence]; }
  const Chunk* chunk(std::string_view id) const {
    const auto found = chunk_by_id.find(id);
    return found == chunk_by_id.end() ? nullptr : &chunks[found->second];
  }
  const Chapter* chapter(std::string_view name) const {
    const auto found = chapter_by_name.find(name);
    return found == chapter_by_name.end() ? nullptr : &chapters[found->second];
  }
  /// The first title among a chunk's parts, or its id.
  std::string_view title_of(const Chunk& chunk) const;
};

/// Reads book.json and the chapters it names. Throws std::runtime_error when it is another format.
void read_book(Book& book, std::string_view text);

/// The anchor of a part of a chunk on its chapter's page: the id, and "-2" and so on for later parts.
std::string anchor_of(const Chunk& chunk, std::uint32_t part);

/// The lines of a fence, its own indentation removed.
std::string body_of(const Chapter& chapter, const Fence& fence);

}  // namespace weave
