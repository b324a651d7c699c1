// `tangle list`, `graph`, `book-json`: what there is, for people and programs.
#include <algorithm>
#include <cstdio>
#include <set>

#include "json.h"
#include "options.h"

namespace tangle {
namespace {

std::string list_json(const Session& session) {
  Json json;
  json.open('[');
  for (const Output& output : session.outputs) {
    json.line().open('{').field("path", output.path).field("kind", kind_name(output.kind));
    json.field("lines", output.lines()).field("bytes", output.text.size());
    if (output.kind != OutputKind::list) {
      json.field("chapter", session.book.chapters[output.chapter].name).field("id", output.id);
    }
    json.close('}');
  }
  return json.close(']').take();
}

std::string list_text(const Session& session) {
  std::string out;
  for (std::uint32_t c = 0; c < session.program.chapters; ++c) {
    std::string files;
    for (const Output& output : session.outputs) {
      if (output.kind == OutputKind::list || output.chapter != c) continue;
      files += concat("  ", output.path, "  ", kind_name(output.kind), ", ", std::to_string(output.lines()),
                      output.lines() == 1 ? " line\n" : " lines\n");
    }
    if (!files.empty()) out += concat(session.book.chapters[c].name, '\n', files);
  }
  return out;
}

struct Graph {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string_view>> nodes;  ///< id and label
  std::set<std::pair<std::string_view, std::string_view>> edges;     ///< from what is needed to what needs it
};

Graph chapter_graph(const Session& session) {
  Graph graph{"chapters", {}, {}};
  const auto& names = session.book.names;
  const auto add = [&](std::string_view from, std::string_view to, std::string_view other) {
    if (std::ranges::find(names, other) != names.end()) graph.edges.emplace(from, to);
  };
  for (const Document& chapter : session.book.chapters) {
    const std::string_view title = chapter.front.text("title");
    graph.nodes.emplace_back(chapter.name, title.empty() ? chapter.name : title);
    for (const YamlNode* before : chapter.front.list("prerequisites")) {
      add(before->scalar, chapter.name, before->scalar);
    }
    for (const YamlNode* after : chapter.front.list("unlocks")) add(chapter.name, after->scalar, after->scalar);
  }
  return graph;
}

Graph chunk_graph(const Session& session) {
  Graph graph{"chunks", {}, {}};
  for (const Chunk& chunk : session.program.chunks) {
    graph.nodes.emplace_back(chunk.id, chunk.file.empty() ? chunk.id : chunk.file);
    for (const std::uint32_t user : chunk.used_by) graph.edges.emplace(chunk.id, session.program.chunks[user].id);
  }
  return graph;
}

std::string as_dot(const Graph& graph) {
  std::string out = concat("digraph ", graph.name, " {\n  rankdir=LR;\n  node [shape=box];\n");
  for (const auto& [id, label] : graph.nodes)
    out += concat("  ", json_string(id), " [label=", json_string(label), "];\n");
  for (const auto& [from, to] : graph.edges) out += concat("  ", json_string(from), " -> ", json_string(to), ";\n");
  return out + "}\n";
}

std::string as_json(const Graph& graph) {
  Json json;
  json.open('{').field("name", graph.name).key("nodes").open('[');
  for (const auto& [id, label] : graph.nodes) json.line().open('{').field("id", id).field("label", label).close('}');
  json.close(']').key("edges").open('[');
  for (const auto& [from, to] : graph.edges) json.line().open('[').value(from).value(to).close(']');
  return json.close(']').close('}').take();
}

/// Prints what `text` makes of the linked book.
template <class Text>
int print_about(const Options& options, const Text& text) {
  Session session;
  const bool whole = session.load(options);
  const int code = session.report(options);
  return whole ? print(options, text(session)) : code;
}

}  // namespace

int run_list(const Options& options) {
  return print_about(options, [&](const Session& session) {
    return options.cmake ? session.outputs.back().text : options.json ? list_json(session) : list_text(session);
  });
}

int run_graph(const Options& options) {
  const std::string what = options.words.empty() ? "chapters" : options.words.front();
  if (what != "chapters" && what != "chunks") {
    std::fprintf(stderr, "tangle: graph draws \"chapters\" or \"chunks\", not \"%s\"\n", what.c_str());
    return 2;
  }
  return print_about(options, [&](const Session& session) {
    const Graph graph = what == "chapters" ? chapter_graph(session) : chunk_graph(session);
    return options.json ? as_json(graph) : as_dot(graph);
  });
}

int run_book_json(const Options& options) {
  return print_about(options, [](const Session& session) { return book_json(session.program, session.outputs); });
}

}  // namespace tangle
