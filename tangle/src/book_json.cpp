#include "output.h"

#include "json.h"

namespace tangle {
namespace {

class Writer {
 public:
  Writer(const Program& program, const std::vector<Output>& outputs) : program_(program), outputs_(outputs) {}

  std::string book() {
    json_.open('{').field("format", "rosellm.book").field("version", book_json_version);
    json_.field("reader", pandoc_reader).field("title", program_.book->title);
    json_.key("parts").open('[');
    for (const PartOfBook& each : program_.book->parts) part(each);
    json_.close(']').key("chapters").open('[');
    for (std::uint32_t c = 0; c < program_.chapters; ++c) chapter(program_.book->chapters[c]);
    json_.close(']').key("chunks").open('[');
    for (const Chunk& each : program_.chunks) chunk(each);
    json_.close(']');
    return maps();
  }

  std::string source_maps() {
    json_.open('{').field("format", "rosellm.map").field("version", book_json_version);
    return maps();
  }

 private:
  void part(const PartOfBook& part) {
    json_.line().open('{').field("id", part.id).field("title", part.title).key("chapters").open('[');
    for (const std::string& name : part.chapters) json_.value(name);
    json_.close(']').close('}');
  }

  void yaml(const YamlNode& node) {
    if (node.kind == YamlNode::Kind::map) {
      json_.open('{');
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        json_.key(node.keys[i].scalar);
        yaml(node.items[i]);
      }
      json_.close('}');
    } else if (node.kind == YamlNode::Kind::list) {
      json_.open('[');
      for (const YamlNode& item : node.items) yaml(item);
      json_.close(']');
    } else {
      json_.value(node.scalar);
    }
  }

  void chapter(const Document& document) {
    json_.line().open('{').field("name", document.name).field("path", document.source->path).key("front");
    if (document.front.kind == YamlNode::Kind::map) yaml(document.front);
    else json_.open('{').close('}');
    json_.key("fences").open('[');
    for (const Fence& each : document.fences) fence(each);
    json_.close(']').close('}');
  }

  void fence(const Fence& fence) {
    json_.line().open('{').field("role", role_name(fence.role)).field("language", fence.language);
    if (!fence.id().empty()) json_.field("id", fence.id());
    if (fence.append) json_.field("append", true);
    if (fence.replace) json_.field("replace", true);
    if (fence.plain) json_.field("plain", true);
    for (const KeyValue& pair : fence.attributes.pairs) json_.field(pair.key, pair.value);
    json_.field("line", fence.lines.line).field("lines", fence.lines.body_lines).field("begin", fence.lines.open);
    json_.field("body_begin", fence.body.begin).field("body_end", fence.body.end);
    json_.field("end", fence.lines.end).field("indent", fence.lines.indent);
    if (!fence.references.empty()) {
      json_.key("references").open('[');
      for (const Reference& reference : fence.references) {
        json_.open('{').field("id", reference.id).field("line", fence.body_line() + reference.number).close('}');
      }
      json_.close(']');
    }
    json_.close('}');
  }

  void chunk(const Chunk& chunk) {
    json_.line().open('{').field("id", chunk.id).field("role", role_name(chunk.role));
    if (!chunk.file.empty()) json_.field("file", chunk.file);
    json_.key("parts").open('[');
    for (std::uint32_t p = 0; p < chunk.parts.size(); ++p) {
      json_.open('{').field("chapter", program_.document(chunk.parts[p]).name);
      json_.field("fence", chunk.parts[p].fence).field("live", p >= chunk.first_live).close('}');
    }
    json_.close(']').key("used_by").open('[');
    for (const std::uint32_t user : chunk.used_by) json_.value(program_.chunks[user].id);
    json_.close(']').close('}');
  }

  /// The outputs with their source maps, and the end of the text.
  std::string maps() {
    json_.key("outputs").open('[');
    for (const Output& output : outputs_) {
      json_.line().open('{').field("path", output.path).field("kind", kind_name(output.kind));
      if (output.kind != OutputKind::list) {
        json_.field("id", output.id).field("chapter", program_.book->chapters[output.chapter].name);
      }
      json_.key("map").open('[');
      for (const Run& each : output.map) run(each);
      json_.close(']').close('}');
    }
    return json_.close(']').close('}').take();
  }

  /// [line, lines, "body" or "title", chunk id, part, chapter, chapter line, byte offset, column delta],
  /// or [line, lines, "frame"].
  void run(const Run& run) {
    json_.open('[').value(run.line).value(run.lines);
    if (run.chunk == Run::no_part) {
      json_.value("frame");
    } else {
      const Chunk& chunk = program_.chunks[run.chunk];
      json_.value(run.kind == Run::Kind::body ? "body" : "title").value(chunk.id).value(run.part);
      json_.value(program_.document(chunk.parts[run.part]).name).value(run.source_line);
      json_.value(run.source_offset).value(run.column_delta);
    }
    json_.close(']');
  }

  const Program& program_;
  const std::vector<Output>& outputs_;
  Json json_;
};

}  // namespace

std::string book_json(const Program& program, const std::vector<Output>& outputs) {
  return Writer(program, outputs).book();
}

std::string source_map_json(const Program& program, const std::vector<Output>& outputs) {
  return Writer(program, outputs).source_maps();
}

}  // namespace tangle
