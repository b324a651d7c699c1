// The program that a book is: chunks by id, linked, checked.
//
//   Book (documents) ── link ──▶ Program (chunks, files) ── produce ──▶ outputs (text + source map)
//
// A program points into its book, which must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "book.h"
#include "diagnostics.h"

namespace tangle {

/// One fence that contributes to a chunk.
struct ChunkPart {
  std::uint32_t chapter = 0;
  std::uint32_t fence = 0;
};

struct Chunk {
  std::string_view id;
  Role role = Role::code;
  std::vector<ChunkPart> parts;        ///< in reading order, superseded ones included
  std::uint32_t first_live = 0;        ///< parts before this one were replaced by a later chapter
  std::uint64_t bytes = 0;             ///< about how long it is when expanded, titles and indentation not counted
  std::string_view file;               ///< output path of a root, or empty
  Span file_span;                      ///< where the path is written
  std::vector<std::uint32_t> used_by;  ///< chunks that hold a reference to this one, without repeats
};

struct Program {
  const Book* book = nullptr;
  std::uint32_t chapters = 0;  ///< how many of the book's chapters are in: all, or up to a checkpoint
  std::vector<Chunk> chunks;   ///< in order of their first part
  std::unordered_map<std::string_view, std::uint32_t> by_id;

  const Fence& fence(ChunkPart part) const { return book->chapters[part.chapter].fences[part.fence]; }
  const Document& document(ChunkPart part) const { return book->chapters[part.chapter]; }
  /// The first fence of a chunk that counts.
  const Fence& head(const Chunk& chunk) const { return fence(chunk.parts[chunk.first_live]); }
  const Chunk* find(std::string_view id) const {
    const auto found = by_id.find(id);
    return found == by_id.end() ? nullptr : &chunks[found->second];
  }
};

/// Links the first `chapters` chapters of the book. The book's later chapters are not looked at, so an
/// unused chunk is an error only in a whole book.
Program link(const Book& book, std::uint32_t chapters, Diagnostics& diagnostics);

}  // namespace tangle
