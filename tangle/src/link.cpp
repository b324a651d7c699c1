#include <algorithm>
#include <utility>

#include "language.h"
#include "program.h"
#include "text.h"

namespace tangle {
namespace {

constexpr std::uint32_t deepest = 200;        // references within references
constexpr std::uint64_t largest = 64u << 20;  // bytes of one expanded chunk
constexpr std::size_t most_suggestions = 20;  // searching near names is quadratic

class Linker {
 public:
  Linker(const Book& book, std::uint32_t chapters, Diagnostics& diagnostics) : book_(book), diagnostics_(diagnostics) {
    program_.book = &book;
    program_.chapters = chapters;
  }

  Program run() {
    for (std::uint32_t c = 0; c < program_.chapters; ++c) {
      for (std::uint32_t f = 0; f < book_.chapters[c].fences.size(); ++f) add({c, f});
    }
    for (std::uint32_t i = 0; i < program_.chunks.size(); ++i) references(i);
    if (program_.chapters == book_.chapters.size()) unused();
    state_.resize(program_.chunks.size());
    for (std::uint32_t i = 0; i < program_.chunks.size(); ++i) visit(i);
    return std::move(program_);
  }

 private:
  struct State {
    enum class Mark : std::uint8_t { fresh, open, done } mark = Mark::fresh;
    std::uint64_t bytes = 0;   ///< of the expanded text
    std::uint32_t height = 0;  ///< of references below this chunk
  };

  std::uint32_t index_of(const Chunk& chunk) const {
    return static_cast<std::uint32_t>(&chunk - program_.chunks.data());
  }

  void add(ChunkPart part) {
    const Fence& fence = program_.fence(part);
    if (fence.id().empty() || fence.role == Role::listing || fence.role == Role::table) return;
    const auto [at, fresh] = program_.by_id.try_emplace(fence.id(), static_cast<std::uint32_t>(program_.chunks.size()));
    if (fresh) {
      if ((fence.append || fence.replace) && !fence.faulty) nothing_to_change(fence);
      program_.chunks.push_back({fence.id(), fence.role, {}, 0, 0, {}, {}, {}});
    }
    Chunk& chunk = program_.chunks[at->second];
    if (!fresh && !joins(chunk, part)) return;
    chunk.parts.push_back(part);
    file_of(chunk, fence);
  }

  void nothing_to_change(const Fence& fence) {
    const std::string_view verb = fence.append ? "append to" : "replace";
    Message& message = diagnostics_.error(
        fence.append ? "append-to-nothing" : "replace-nothing", fence.place(),
        concat("no earlier chapter defines ", quoted(fence.id()), ", so there is nothing to ", verb));
    suggest(message, fence.id());
  }

  /// Whether a fence may add to a chunk that exists already.
  bool joins(Chunk& chunk, ChunkPart part) {
    const Fence& fence = program_.fence(part);
    const Fence& first = program_.fence(chunk.parts.front());
    const bool same_chapter = chunk.parts.back().chapter == part.chapter;
    if (fence.role != chunk.role) {
      diagnostics_
          .error("duplicate-chunk", fence.place(),
                 concat(quoted(fence.id()), " is already the id of a ", role_name(chunk.role), " chunk"))
          .note(first.place(), "it is defined here");
      return false;
    }
    if (family(fence.language) != family(first.language)) {
      diagnostics_.error("language-mismatch", fence.info, "the parts of one chunk are in one language")
          .note(first.info, "it begins in another language here");
    }
    if (fence.replace) return replaces(chunk, part);
    const bool code = chunk.role == Role::code;
    if (fence.append || (code && same_chapter)) return true;
    const std::string_view where = same_chapter ? "this chapter" : program_.document(chunk.parts.back()).name;
    diagnostics_
        .error(chunk.role == Role::test && same_chapter ? "duplicate-test" : "duplicate-chunk", fence.place(),
               concat(quoted(fence.id()), " is already defined in ", where))
        .note(first.place(), "it is defined here")
        .help(code ? "say .append to continue it, .replace to supersede it, or choose another id"
                   : "choose another id, or say .append to continue it");
    return false;
  }

  bool replaces(Chunk& chunk, ChunkPart part) {
    const Fence& fence = program_.fence(part);
    if (chunk.parts.back().chapter == part.chapter) {
      diagnostics_.error("replace-nothing", fence.place(), ".replace supersedes a chunk of an earlier chapter")
          .note(program_.fence(chunk.parts.back()).place(), "this one is in the same chapter");
      return false;
    }
    chunk.first_live = static_cast<std::uint32_t>(chunk.parts.size());
    return true;
  }

  void file_of(Chunk& chunk, const Fence& fence) {
    const KeyValue* file = fence.file();
    if (!file || file->value.empty()) return;
    if (chunk.file.empty()) {
      if (chunk.parts.size() > 1) {
        diagnostics_.error("late-file", file->span, "the first part of a chunk says which file it becomes");
      }
      chunk.file = file->value;
      chunk.file_span = file->value_span;
    } else if (chunk.file != file->value) {
      diagnostics_.error("second-file", file->value_span, "a chunk becomes one file")
          .note(chunk.file_span, concat("this one is already called ", chunk.file));
    }
  }

  void references(std::uint32_t index) {
    for (const ChunkPart part : program_.chunks[index].parts) {
      for (const Reference& reference : program_.fence(part).references) {
        const Chunk* target = program_.find(reference.id);
        if (!target) {
          suggest(diagnostics_.error("undefined-chunk", reference.span, "no chunk is called " + quoted(reference.id)),
                  reference.id);
          continue;
        }
        check_use(program_.fence(part), part.chapter, reference, *target);
        auto& users = program_.chunks[index_of(*target)].used_by;
        if (users.empty() || users.back() != index) users.push_back(index);
      }
    }
  }

  void check_use(const Fence& fence, std::uint32_t chapter, const Reference& reference, const Chunk& used) {
    const Fence& first = program_.fence(used.parts.front());
    const std::string id = quoted(reference.id);
    if (used.role != Role::code) {
      diagnostics_
          .error("not-woven", reference.span,
                 concat(id, " is a ", role_name(used.role), " chunk, which is not woven into others"))
          .note(first.place(), "it is defined here");
    } else if (used.parts.front().chapter > chapter) {
      diagnostics_
          .error("later-chapter", reference.span,
                 id + " is defined in a later chapter, so the program would not build at the end of this one")
          .note(first.place(), "it is first defined here");
    } else if (family(first.language) != family(fence.language)) {
      diagnostics_
          .error("language-mismatch", reference.span,
                 concat("a ", first.language, " chunk in a ", fence.language, " one"))
          .note(first.info, "it is defined here");
    } else if (!used.file.empty()) {
      diagnostics_.error("root-used", reference.span, id + " is a file of its own and cannot be woven in as well")
          .note(used.file_span, "it becomes this file");
    }
  }

  void suggest(Message& message, std::string_view id) {
    if (++suggestions_ > most_suggestions) return;
    std::vector<std::string_view> ids;
    for (const Chunk& chunk : program_.chunks) {
      if (chunk.role == Role::code) ids.push_back(chunk.id);
    }
    for (const std::string_view near : nearest(id, ids)) {
      const Chunk* chunk = program_.find(near);
      if (chunk->parts.empty()) continue;
      message.note(program_.fence(chunk->parts.front()).place(), "did you mean " + quoted(near) + "?");
    }
  }

  void unused() {
    for (const Chunk& chunk : program_.chunks) {
      if (chunk.role != Role::code || !chunk.file.empty() || !chunk.used_by.empty()) continue;
      const Fence& first = program_.fence(chunk.parts.front());
      if (first.faulty || first.file()) continue;
      diagnostics_.error("unused-chunk", first.place(), "nothing uses the chunk " + quoted(chunk.id))
          .help(concat("refer to it with a line <<", chunk.id, ">>, give it file=, or make it a .sketch"));
    }
  }

  /// Depth first over the live references: finds cycles, bounds depth and size of what is written.
  void visit(std::uint32_t index) {
    if (state_[index].mark != State::Mark::fresh) return;
    state_[index].mark = State::Mark::open;
    const Chunk& chunk = program_.chunks[index];
    State below;
    for (std::uint32_t p = chunk.first_live; p < chunk.parts.size(); ++p) {
      const Fence& fence = program_.fence(chunk.parts[p]);
      below.bytes += fence.body.end - fence.body.begin;
      for (const Reference& reference : fence.references) {
        const Chunk* target = program_.find(reference.id);
        if (!target) continue;
        path_.push_back({index, &reference});
        enter(index_of(*target), below);
        path_.pop_back();
      }
    }
    if (below.bytes > largest && !std::exchange(told_large_, true)) {
      diagnostics_.error("too-large", program_.fence(chunk.parts.front()).place(),
                         "this chunk expands to more than 64 MiB");
    }
    state_[index] = {State::Mark::done, std::min(below.bytes, largest + 1), below.height};
    program_.chunks[index].bytes = state_[index].bytes;
  }

  /// Follows the last reference of the path to `target`, and adds what it holds to `below`.
  void enter(std::uint32_t target, State& below) {
    if (state_[target].mark == State::Mark::open) return cycle(target);
    if (path_.size() <= deepest) visit(target);
    below.bytes += state_[target].bytes;
    below.height = std::max(below.height, state_[target].height + 1);
    if ((below.height > deepest || path_.size() > deepest) && !std::exchange(told_deep_, true)) {
      diagnostics_.error("too-deep", path_.back().reference->span,
                         "references are nested more than " + std::to_string(deepest) + " deep here");
    }
  }

  void cycle(std::uint32_t target) {
    const auto first = std::ranges::find(path_, target, &Hop::chunk);
    if (first == path_.end()) return;
    Message& message = diagnostics_.error("cycle", first->reference->span,
                                          concat("the chunk ", quoted(program_.chunks[target].id), " contains itself"));
    for (auto hop = first; hop != path_.end(); ++hop) {
      message.note(hop->reference->span,
                   concat(quoted(program_.chunks[hop->chunk].id), " uses ", quoted(hop->reference->id), " here"));
    }
  }

  struct Hop {
    std::uint32_t chunk;
    const Reference* reference;
  };

  const Book& book_;
  Diagnostics& diagnostics_;
  Program program_;
  std::vector<State> state_;
  std::vector<Hop> path_;
  std::size_t suggestions_ = 0;
  bool told_deep_ = false, told_large_ = false;
};

}  // namespace

Program link(const Book& book, std::uint32_t chapters, Diagnostics& diagnostics) {
  return Linker(book, chapters, diagnostics).run();
}

}  // namespace tangle
