#include "output.h"

#include "json.h"

namespace tangle {
namespace {

class Writer {
 public:
  Writer(const Program& program, const std::vector<Output>& outputs) : program_(program), outputs_(outputs) {}

  std::string book() {
    json_.open('{');
    json_.key("format").value(std::string_view("rosellm.book"));
    json_.key("version").value(std::int64_t{book_json_version});
    json_.key("reader").value(pandoc_reader);
    json_.key("title").value(program_.book->title);
    parts();
    json_.key("chapters").open('[');
    for (std::uint32_t c = 0; c < program_.chapters; ++c) chapter(program_.book->chapters[c]);
    json_.close(']').key("chunks").open('[');
    for (const Chunk& each : program_.chunks) chunk(each);
    json_.close(']');
    maps();
    return json_.close('}').take();
  }

  std::string source_maps() {
    json_.open('{');
    json_.key("format").value(std::string_view("rosellm.map"));
    json_.key("version").value(std::int64_t{book_json_version});
    maps();
    return json_.close('}').take();
  }

 private:
  void number(std::string_view key, std::int64_t value) { json_.key(key).value(value); }
  void text(std::string_view key, std::string_view value) { json_.key(key).value(value); }

  void parts() {
    json_.key("parts").open('[');
    for (const PartOfBook& part : program_.book->parts) {
      json_.line().open('{');
      text("id", part.id);
      text("title", part.title);
      json_.key("chapters").open('[');
      for (const std::string& name : part.chapters) json_.value(name);
      json_.close(']').close('}');
    }
    json_.close(']');
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
    json_.line().open('{');
    text("name", document.name);
    text("path", document.source->path);
    json_.key("front");
    document.front.kind == YamlNode::Kind::map ? yaml(document.front) : static_cast<void>(json_.open('{').close('}'));
    json_.key("fences").open('[');
    for (const Fence& each : document.fences) fence(each);
    json_.close(']').close('}');
  }

  void fence(const Fence& fence) {
    json_.line().open('{');
    text("role", role_name(fence.role));
    text("language", fence.language);
    if (!fence.id().empty()) text("id", fence.id());
    if (fence.append) json_.key("append").value(true);
    if (fence.replace) json_.key("replace").value(true);
    if (fence.plain) json_.key("plain").value(true);
    for (const KeyValue& pair : fence.attributes.pairs) text(pair.key, pair.value);
    number("line", fence.lines.line);
    number("lines", fence.lines.body_lines);
    number("begin", fence.lines.open);
    number("body_begin", fence.body.begin);
    number("body_end", fence.body.end);
    number("end", fence.lines.end);
    number("indent", fence.lines.indent);
    if (!fence.references.empty()) {
      json_.key("references").open('[');
      for (const Reference& reference : fence.references) {
        json_.open('{');
        text("id", reference.id);
        number("line", fence.body_line() + reference.number);
        json_.close('}');
      }
      json_.close(']');
    }
    json_.close('}');
  }

  void chunk(const Chunk& chunk) {
    json_.line().open('{');
    text("id", chunk.id);
    text("role", role_name(chunk.role));
    if (!chunk.file.empty()) text("file", chunk.file);
    json_.key("parts").open('[');
    for (std::uint32_t p = 0; p < chunk.parts.size(); ++p) {
      json_.open('{');
      text("chapter", program_.document(chunk.parts[p]).name);
      number("fence", chunk.parts[p].fence);
      json_.key("live").value(p >= chunk.first_live);
      json_.close('}');
    }
    json_.close(']').key("used_by").open('[');
    for (const std::uint32_t user : chunk.used_by) json_.value(program_.chunks[user].id);
    json_.close(']').close('}');
  }

  void maps() {
    json_.key("outputs").open('[');
    for (const Output& output : outputs_) {
      json_.line().open('{');
      text("path", output.path);
      text("kind", kind_name(output.kind));
      if (output.kind != OutputKind::list) {
        text("id", output.id);
        text("chapter", program_.book->chapters[output.chapter].name);
      }
      json_.key("map").open('[');
      for (const Run& run : output.map) this->run(run);
      json_.close(']').close('}');
    }
    json_.close(']');
  }

  /// [line, lines, "body" or "title", chunk id, part, chapter, chapter line, byte offset, column delta],
  /// or [line, lines, "frame"].
  void run(const Run& run) {
    json_.open('[').value(std::int64_t{run.line}).value(std::int64_t{run.lines});
    if (run.chunk == Run::no_part) {
      json_.value(std::string_view("frame"));
    } else {
      const Chunk& chunk = program_.chunks[run.chunk];
      json_.value(std::string_view(run.kind == Run::Kind::body ? "body" : "title")).value(chunk.id);
      json_.value(std::int64_t{run.part}).value(program_.document(chunk.parts[run.part]).name);
      json_.value(std::int64_t{run.source_line})
          .value(std::int64_t{run.source_offset})
          .value(std::int64_t{run.column_delta});
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
