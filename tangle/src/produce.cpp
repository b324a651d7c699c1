// From program to outputs: which files there are, by role.
#include <algorithm>

#include "expand.h"
#include "language.h"
#include "output.h"

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
    const auto by_path = [](const Output& a, const Output& b) { return a.path < b.path; };
    std::stable_sort(outputs_.begin(), outputs_.end(), by_path);
    Output list;
    list.kind = OutputKind::list;
    list.path = "outputs.cmake";
    outputs_.push_back(std::move(list));
    check_paths(outputs_, diagnostics_);
    outputs_.back().text = outputs_cmake(program_, outputs_);
    return std::move(outputs_);
  }

 private:
  const Fence& first(const Chunk& chunk) const { return program_.fence(chunk.parts[chunk.first_live]); }

  Output& add(OutputKind kind, std::string path, const Chunk& chunk) {
    Output& output = outputs_.emplace_back();
    output.kind = kind;
    output.path = std::move(path);
    output.id = chunk.id;
    output.chapter = chunk.parts.front().chapter;
    output.place = first(chunk).place();
    return output;
  }

  void root_of(std::uint32_t index) {
    const Chunk& chunk = program_.chunks[index];
    const std::string id(chunk.id);
    const std::string ending = is_cuda(first(chunk).language) ? ".cu" : ".cpp";
    if (chunk.role == Role::code && !chunk.file.empty()) {
      Output& output = add(OutputKind::source, chunk.file, chunk);
      output.place = chunk.file_span;
      whole(output, index);
    }
    if (chunk.role == Role::example) whole(add(OutputKind::example, "examples/" + id + ending, chunk), index);
    if (chunk.role == Role::fail) whole(add(OutputKind::fail, "fail/" + id + ending, chunk), index);
    if (chunk.role == Role::bench) bench(index, ending);
    if (chunk.role == Role::exercise) exercise(index, ending);
    if (chunk.role == Role::solution) target(chunk, Role::exercise, "missing-exercise");
  }

  void whole(Output& output, std::uint32_t index) {
    if (!diagnostics_.failed()) Expander(program_, output).root(index);
  }

  void bench(std::uint32_t index, const std::string& ending) {
    const Chunk& chunk = program_.chunks[index];
    const KeyValue* name = first(chunk).attributes.find("bench");
    if (!name) return;
    Output& output = add(OutputKind::bench, "bench/" + name->value + ending, chunk);
    output.id = name->value;
    output.place = name->value_span;
    whole(output, index);
  }

  /// The chunk that `of=` names; an error when it is not there or has another role.
  const Chunk* target(const Chunk& chunk, Role role, std::string_view code) {
    const KeyValue* of = first(chunk).attributes.find("of");
    if (!of) return nullptr;
    const Chunk* found = program_.find(of->value);
    if (found && found->role == role) return found;
    Message& message = diagnostics_.error(
        code, of->value_span, "there is no ." + std::string(role_name(role)) + " chunk \"" + of->value + "\"");
    if (found) message.note(program_.fence(found->parts.front()).place(), "this is a chunk of another kind");
    return nullptr;
  }

  /// The chunks of a role whose `of=` names `id`.
  std::vector<std::uint32_t> companions(Role role, std::string_view id) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < program_.chunks.size(); ++i) {
      const Chunk& chunk = program_.chunks[i];
      if (chunk.role == role && first(chunk).attributes.value("of") == id) out.push_back(i);
    }
    return out;
  }

  void exercise(std::uint32_t index, const std::string& ending) {
    const Chunk& chunk = program_.chunks[index];
    const auto solutions = companions(Role::solution, chunk.id);
    const auto tests = companions(Role::test, chunk.id);
    if (solutions.size() != 1) {
      Message& message = diagnostics_.error(
          "missing-solution", first(chunk).place(),
          solutions.empty() ? "this exercise has no .solution" : "this exercise has more than one .solution");
      for (const std::uint32_t other : solutions) message.note(first(program_.chunks[other]).place(), "one is here");
    }
    if (tests.empty()) {
      diagnostics_
          .error("missing-test", first(chunk).place(), "this exercise has no .test that could tell right from wrong")
          .help("add a chunk {#… .test of=\"" + std::string(chunk.id) + "\"}");
    }
    if (diagnostics_.failed()) return;
    const std::string_view ns = first(chunk).attributes.value("ns");
    const std::string stem = "exercises/" + std::string(chunk.id);
    std::vector<std::uint32_t> chunks{index};
    chunks.insert(chunks.end(), tests.begin(), tests.end());
    test_file(program_, add(OutputKind::exercise, stem + "_stub" + ending, chunk), chunks, ns);
    chunks.front() = solutions.front();
    test_file(program_, add(OutputKind::solution, stem + "_solution" + ending, chunk), chunks, ns);
  }

  /// The test files of a chapter: one for C++, one for CUDA where it has such tests.
  void tests(std::uint32_t chapter) {
    std::vector<std::uint32_t> cpp, cuda;
    for (const Fence& fence : program_.book->chapters[chapter].fences) {
      if (fence.role != Role::test || fence.id().empty()) continue;
      const auto index = program_.by_id.find(fence.id())->second;
      const Chunk& chunk = program_.chunks[index];
      if (chunk.role != Role::test || chunk.parts.front().chapter != chapter) continue;
      auto& list = is_cuda(first(chunk).language) ? cuda : cpp;
      if (std::find(list.begin(), list.end(), index) != list.end()) continue;
      if (!fence.attributes.find("of")) list.push_back(index);
      else target(chunk, Role::exercise, "missing-exercise");
    }
    test_output(chapter, cpp, "_test.cpp");
    test_output(chapter, cuda, "_test.cu");
  }

  void test_output(std::uint32_t chapter, const std::vector<std::uint32_t>& chunks, const std::string& ending) {
    if (chunks.empty()) return;
    const std::string_view name = program_.book->chapters[chapter].name;
    Output& output = add(OutputKind::test, "tests/" + std::string(name) + ending, program_.chunks[chunks.front()]);
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
        diagnostics_.error("missing-example", of->value_span, "there is no .example chunk \"" + of->value + "\"");
        continue;
      }
      Output& output = add(OutputKind::expected, "examples/" + std::string(chunk->id) + ".out", *chunk);
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
