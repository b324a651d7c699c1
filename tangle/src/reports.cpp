// `tangle list`, `graph`, `book-json`: what there is, for people and programs.
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
    json.line().open('{').key("path").value(output.path).key("kind").value(kind_name(output.kind));
    json.key("lines").value(
        std::int64_t(output.map.empty() ? 0 : output.map.back().line + output.map.back().lines - 1));
    json.key("bytes").value(static_cast<std::int64_t>(output.text.size()));
    if (output.kind != OutputKind::list) {
      json.key("chapter").value(session.book.chapters[output.chapter].name).key("id").value(output.id);
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
      const std::uint32_t lines = output.map.empty() ? 0 : output.map.back().line + output.map.back().lines - 1;
      files += "  " + output.path + "  " + std::string(kind_name(output.kind)) + ", " + std::to_string(lines) +
               (lines == 1 ? " line\n" : " lines\n");
    }
    if (!files.empty()) out += std::string(session.book.chapters[c].name) + "\n" + files;
  }
  return out;
}

struct Graph {
  struct Node {
    std::string id, label;
  };
  std::string name;
  std::vector<Node> nodes;
  std::set<std::pair<std::string, std::string>> edges;  ///< from what is needed to what needs it
};

Graph chapter_graph(const Session& session) {
  Graph graph{"chapters", {}, {}};
  std::set<std::string_view> known;
  for (const Document& chapter : session.book.chapters) known.insert(chapter.name);
  for (const Document& chapter : session.book.chapters) {
    const std::string_view title = chapter.front.text("title");
    graph.nodes.push_back({std::string(chapter.name), std::string(title.empty() ? chapter.name : title)});
    for (const YamlNode* before : chapter.front.list("prerequisites")) {
      if (known.count(before->scalar)) graph.edges.emplace(before->scalar, chapter.name);
    }
    for (const YamlNode* after : chapter.front.list("unlocks")) {
      if (known.count(after->scalar)) graph.edges.emplace(chapter.name, after->scalar);
    }
  }
  return graph;
}

Graph chunk_graph(const Session& session) {
  Graph graph{"chunks", {}, {}};
  for (const Chunk& chunk : session.program.chunks) {
    graph.nodes.push_back({std::string(chunk.id), chunk.file.empty() ? std::string(chunk.id) : chunk.file});
    for (const std::uint32_t user : chunk.used_by) {
      graph.edges.emplace(std::string(chunk.id), std::string(session.program.chunks[user].id));
    }
  }
  return graph;
}

std::string as_dot(const Graph& graph) {
  std::string out = "digraph " + graph.name + " {\n  rankdir=LR;\n  node [shape=box];\n";
  const auto quoted = [](std::string_view text) {
    std::string word;
    append_json_string(word, text);
    return word;
  };
  for (const auto& node : graph.nodes) out += "  " + quoted(node.id) + " [label=" + quoted(node.label) + "];\n";
  for (const auto& [from, to] : graph.edges) out += "  " + quoted(from) + " -> " + quoted(to) + ";\n";
  return out + "}\n";
}

std::string as_json(const Graph& graph) {
  Json json;
  json.open('{').key("name").value(graph.name).key("nodes").open('[');
  for (const auto& node : graph.nodes) {
    json.line().open('{').key("id").value(node.id).key("label").value(node.label).close('}');
  }
  json.close(']').key("edges").open('[');
  for (const auto& [from, to] : graph.edges) json.line().open('[').value(from).value(to).close(']');
  return json.close(']').close('}').take();
}

}  // namespace

int run_list(const Options& options) {
  Session session;
  if (!session.load(options)) return session.report(options);
  session.report(options);
  if (options.cmake) return print(options, session.outputs.back().text);
  return print(options, options.json ? list_json(session) : list_text(session));
}

int run_graph(const Options& options) {
  const std::string what = options.words.empty() ? "chapters" : options.words.front();
  if (what != "chapters" && what != "chunks") {
    std::fprintf(stderr, "tangle: graph draws \"chapters\" or \"chunks\", not \"%s\"\n", what.c_str());
    return 2;
  }
  Session session;
  if (!session.load(options)) return session.report(options);
  session.report(options);
  const Graph graph = what == "chapters" ? chapter_graph(session) : chunk_graph(session);
  return print(options, options.json ? as_json(graph) : as_dot(graph));
}

int run_book_json(const Options& options) {
  Session session;
  if (!session.load(options)) return session.report(options);
  session.report(options);
  return print(options, book_json(session.program, session.outputs));
}

}  // namespace tangle
