// From program to outputs: which files there are, by role.
#include <algorithm>

#include "expand.h"
#include "language.h"
#include "output.h"
#include "text.h"

namespace tangle {
namespace {

class Producer {
 public:
  Producer(const Program& program, Diagnostics& diagnostics) : program_(program), diagnostics_(diagnostics) {}

  std::vector<Output> run() {
    for (std::uint32_t i = 0; i < program_.chunks.size(); ++i) root_of(i);
    for (std::uint32_t c = 0; c < program_.chapters; ++c) {
      tests(c);
      expected(c);
    }
    std::ranges::stable_sort(outputs_, {}, &Output::path);
    Output& list = outputs_.emplace_back();
    list.kind = OutputKind::list;
    list.path = "outputs.cmake";
    check_paths(outputs_, diagnostics_);
    list.text = outputs_cmake(program_, outputs_);
    return std::move(outputs_);
  }

 private:
  Output& add(OutputKind kind, std::string path, const Chunk& chunk) {
    Output& output = outputs_.emplace_back();
    output.kind = kind;
    output.path = std::move(path);
    output.id = chunk.id;
    output.chapter = chunk.parts.front().chapter;
    output.place = program_.head(chunk).place();
    return output;
  }

  void root_of(std::uint32_t index) {
    const Chunk& chunk = program_.chunks[index];
    const std::string name = std::string(chunk.id) + ending(chunk);
    if (!chunk.file.empty()) whole(index, OutputKind::source, std::string(chunk.file)).place = chunk.file_span;
    if (chunk.role == Role::example) whole(index, OutputKind::example, "examples/" + name);
    if (chunk.role == Role::fail) whole(index, OutputKind::fail, "fail/" + name);
    if (chunk.role == Role::bench) bench(index);
    if (chunk.role == Role::exercise) exercise(index);
    if (chunk.role == Role::solution) needs_exercise(program_.head(chunk));
  }

  std::string ending(const Chunk& chunk) const { return is_cuda(program_.head(chunk).language) ? ".cu" : ".cpp"; }

  /// A chunk that is a file by itself.
  Output& whole(std::uint32_t index, OutputKind kind, std::string path) {
    Output& output = add(kind, std::move(path), program_.chunks[index]);
    output.text.reserve(program_.chunks[index].bytes * 9 / 8);
    if (!diagnostics_.failed()) Expander(program_, output).chunk(index, {}, true);
    return output;
  }

  void bench(std::uint32_t index) {
    const Chunk& chunk = program_.chunks[index];
    const KeyValue* name = program_.head(chunk).attributes.find("bench");
    if (!name) return;
    Output& output = whole(index, OutputKind::bench, concat("bench/", name->value, ending(chunk)));
    output.id = name->value;
    output.place = name->value_span;
  }

  /// Refuses an `of=` that names no exercise.
  void needs_exercise(const Fence& fence) {
    const KeyValue* of = fence.attributes.find("of");
    const Chunk* found = of ? program_.find(of->value) : nullptr;
    if (!of || (found && found->role == Role::exercise)) return;
    Message& message = diagnostics_.error("missing-exercise", of->value_span,
                                          concat("there is no .exercise chunk ", quoted(of->value)));
    if (found) message.note(program_.fence(found->parts.front()).place(), "this is a chunk of another kind");
  }

  /// The chunks of a role whose `of=` names `id`.
  std::vector<std::uint32_t> companions(Role role, std::string_view id) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < program_.chunks.size(); ++i) {
      const Chunk& chunk = program_.chunks[i];
      if (chunk.role == role && program_.head(chunk).attributes.value("of") == id) out.push_back(i);
    }
    return out;
  }

  void exercise(std::uint32_t index) {
    const Chunk& chunk = program_.chunks[index];
    const auto solutions = companions(Role::solution, chunk.id);
    const auto tests = companions(Role::test, chunk.id);
    if (solutions.size() != 1) {
      Message& message = diagnostics_.error(
          "missing-solution", program_.head(chunk).place(),
          solutions.empty() ? "this exercise has no .solution" : "this exercise has more than one .solution");
      for (const std::uint32_t other : solutions)
        message.note(program_.head(program_.chunks[other]).place(), "one is here");
    }
    if (tests.empty()) {
      diagnostics_
          .error("missing-test", program_.head(chunk).place(),
                 "this exercise has no .test that could tell right from wrong")
          .help(concat("add a chunk {#… .test of=", quoted(chunk.id), "}"));
    }
    if (diagnostics_.failed()) return;
    const auto variant = [&](OutputKind kind, std::string_view suffix, std::uint32_t tried) {
      std::vector<std::uint32_t> chunks{tried};
      chunks.insert(chunks.end(), tests.begin(), tests.end());
      Output& output = add(kind, concat("exercises/", chunk.id, suffix, ending(chunk)), chunk);
      test_file(program_, output, chunks, program_.head(chunk).attributes.value("ns"));
    };
    variant(OutputKind::exercise, "_stub", index);
    variant(OutputKind::solution, "_solution", solutions.front());
  }

  /// The test files of a chapter: one for C++, one for CUDA where it has such tests.
  void tests(std::uint32_t chapter) {
    std::vector<std::uint32_t> cpp, cuda;
    for (std::uint32_t i = 0; i < program_.chunks.size(); ++i) {
      const Chunk& chunk = program_.chunks[i];
      if (chunk.role != Role::test || chunk.parts.front().chapter != chapter) continue;
      const Fence& head = program_.head(chunk);
      if (head.attributes.find("of")) needs_exercise(head);
      else (is_cuda(head.language) ? cuda : cpp).push_back(i);
    }
    test_output(chapter, cpp, "_test.cpp");
    test_output(chapter, cuda, "_test.cu");
  }

  void test_output(std::uint32_t chapter, const std::vector<std::uint32_t>& chunks, std::string_view ending) {
    if (chunks.empty()) return;
    const std::string_view name = program_.book->chapters[chapter].name;
    Output& output = add(OutputKind::test, concat("tests/", name, ending), program_.chunks[chunks.front()]);
    output.id = name;
    if (!diagnostics_.failed()) test_file(program_, output, chunks);
  }

  /// What the examples of other fences print.
  void expected(std::uint32_t chapter) {
    for (const Fence& fence : program_.book->chapters[chapter].fences) {
      const KeyValue* of = fence.role == Role::output ? fence.attributes.find("of") : nullptr;
      if (!of) continue;
      const Chunk* chunk = program_.find(of->value);
      if (!chunk || chunk->role != Role::example) {
        diagnostics_.error("missing-example", of->value_span, "there is no .example chunk " + quoted(of->value));
        continue;
      }
      Output& output = add(OutputKind::expected, concat("examples/", chunk->id, ".out"), *chunk);
      output.place = fence.place();
      Expander(program_, output).listing(fence);
    }
  }

  const Program& program_;
  Diagnostics& diagnostics_;
  std::vector<Output> outputs_;
};

}  // namespace

std::string_view kind_name(OutputKind kind) {
  constexpr std::string_view names[] = {"source",   "test",     "example", "expected", "fail",
                                        "exercise", "solution", "bench",   "list"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<Output> produce(const Program& program, Diagnostics& diagnostics) {
  return Producer(program, diagnostics).run();
}

Origin origin_of(const Program& program, const Output& output, std::uint32_t line, std::uint32_t column) {
  const auto after = std::upper_bound(output.map.begin(), output.map.end(), line,
                                      [](std::uint32_t wanted, const Run& run) { return wanted < run.line; });
  if (after == output.map.begin()) return {};
  const Run& run = *(after - 1);
  if (line >= run.line + run.lines) return {};
  Origin origin{&run, nullptr, 0, 0};
  if (run.kind == Run::Kind::frame || run.chunk == Run::no_part) return origin;
  origin.document = &program.document(program.chunks[run.chunk].parts[run.part]);
  origin.line = run.source_line + (run.kind == Run::Kind::body ? line - run.line : 0);
  const std::int64_t moved = static_cast<std::int64_t>(column) - run.column_delta;
  if (column > 0 && run.kind == Run::Kind::body)
    origin.column = static_cast<std::uint32_t>(std::max<std::int64_t>(1, moved));
  return origin;
}

}  // namespace tangle
