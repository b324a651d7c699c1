#include "api.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>

#include "files.h"
#include "html.h"

namespace weave {
namespace {

constexpr std::string_view index = "api/index.html";
constexpr std::size_t longest_value = 60;  // of an initializer that a declaration shows

std::string link(std::string_view from, std::string_view to, std::string_view html) {
  return "<a href=\"" + escaped(relative(from, to)) + "\">" + std::string(html) + "</a>";
}

std::uint64_t key_of(std::uint64_t high, std::uint32_t line) {
  constexpr unsigned half = 32;
  return (high << half) | line;
}

/// "rose::core::Error" is { "rose::core", "Error" }; brackets of templates may hold colons.
std::pair<std::string, std::string> split_name(std::string_view qualified) {
  const std::size_t colons = qualified.substr(0, qualified.find('<')).rfind("::");
  if (colons == std::string_view::npos) return {{}, std::string(qualified)};
  return {std::string(qualified.substr(0, colons)), std::string(qualified.substr(colons + 2))};
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

/// Doxygen sets spaces where this book's code has none.
std::string as_written(std::string type) {
  for (const auto& [what, with] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {" &amp;", "&amp;"}, {" *", "*"}, {"&lt; ", "&lt;"}, {" &gt;", "&gt;"}})
    replace_all(type, what, with);
  return type;
}

bool blank(std::string_view html) { return html.find_first_not_of(" \n") == std::string_view::npos; }

std::string trimmed_end(std::string html) {
  while (!html.empty() && (html.back() == ' ' || html.back() == '\n')) html.pop_back();
  return html;
}

/// What follows the parameters: "const noexcept", "= default".
std::string behind_parameters(std::string_view arguments) {
  int depth = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    depth += arguments[i] == '(' ? 1 : arguments[i] == ')' ? -1 : 0;
    if (depth > 0 || arguments[i] != ')') continue;
    std::string rest(arguments.substr(i + 1));
    replace_all(rest, "=default", " = default");
    replace_all(rest, "=delete", " = delete");
    replace_all(rest, "=0", " = 0");
    replace_all(rest, "  ", " ");
    return rest;
  }
  return {};
}

std::string_view kind_word(std::string_view kind) {
  if (kind == "typedef") return "alias";
  if (kind == "variable") return "constant";
  if (kind == "define") return "macro";
  return kind;
}

bool is_type(std::string_view kind) {
  return kind == "class" || kind == "struct" || kind == "union" || kind == "enum" || kind == "concept";
}

bool is_block(std::string_view tag) {
  for (const std::string_view each :
       {"itemizedlist", "orderedlist", "programlisting", "verbatim", "preformatted", "simplesect", "blockquote"})
    if (tag == each) return true;
  return false;
}

}  // namespace

std::string page_of_header(std::string_view path) { return "api/" + std::string(path) + ".html"; }

Api::Api(const Book& book, const Documented& documented) : book_(book), folder_(documented.folder) {
  if (folder_.empty()) return;
  for (const std::string& stem : tangle::stems_in(folder_ + "/xml", ".xml"))
    if (stem != "index" && stem != "Doxyfile")
      files_.emplace_back(tangle::read_file(folder_ + "/xml/" + stem + ".xml").value_or(""));
  for (const XmlFile& file : files_)
    for (const Xml* compound : file.root().children)
      if (compound->tag == "compounddef") read(*compound);
  for (auto& [output, entities] : headers_)
    std::sort(entities.begin(), entities.end(), [](const Entity& a, const Entity& b) { return a.line < b.line; });
}

bool Api::located(Entity& entity) const {
  const Xml* place = entity.node->child("location");
  if (place == nullptr || entity.name.empty() || entity.name.front() == '@') return false;
  const auto found = book_.output_by_path.find(place->attribute("file"));
  if (found == book_.output_by_path.end()) return false;
  entity.output = found->second;
  const std::string_view line = place->attribute("line");
  std::from_chars(line.data(), line.data() + line.size(), entity.line);
  return entity.line > 0;
}

void Api::register_place(const Entity& entity, std::string_view id, bool member) {
  const Output& output = book_.outputs[entity.output];
  const std::string place = page_of_header(output.path) + "#" + entity.anchor;
  places_.emplace(id, place);
  if (member && entity.kind == "variable") return;  // fields are many, and say themselves what they are
  const Mark mark{split_name(entity.name).second, place};
  by_output_[key_of(entity.output, entity.line)].push_back(mark);
  if (member) return;
  for (const Run& run : output.runs) {
    if (!run.body || entity.line < run.line || entity.line >= run.line + run.lines) continue;
    const ChunkPart& part = book_.chunks[run.chunk].parts.at(run.part);
    by_chapter_[key_of(part.chapter, run.source_line + entity.line - run.line)].push_back(mark);
  }
}

void Api::read(const Xml& compound) {
  const std::string_view kind = compound.attribute("kind");
  const std::string id(compound.attribute("id"));
  if (kind == "file") {
    const Xml* place = compound.child("location");
    if (place != nullptr && !place->attribute("file").empty())
      places_.emplace(id, page_of_header(place->attribute("file")));
  } else if (kind == "namespace") {
    places_.emplace(id, index);
  }
  Entity type;
  const bool typed = is_type(kind);
  if (typed && compound.attribute("prot") == "private") return;
  if (typed) {
    type.node = &compound;
    type.kind = kind;
    std::tie(type.scope, type.name) = split_name(decoded(compound.text_of("compoundname")));
    type.anchor = decoded(compound.text_of("compoundname"));
    // Namespaces are lower case here and types are not: what is before the type is its page's business.
    while (type.anchor.find("::") != std::string::npos && type.anchor[0] >= 'a' && type.anchor[0] <= 'z')
      type.anchor.erase(0, type.anchor.find("::") + 2);
    std::erase_if(type.anchor, [](char c) { return c == ' '; });
    if (!located(type)) return;
    register_place(type, id, false);
  }
  for (const Xml* section : compound.children)
    if (section->tag == "sectiondef")
      for (const Xml* each : section->children)
        if (each->tag == "memberdef") member(*each, decoded(compound.text_of("compoundname")), typed ? &type : nullptr);
  if (!typed) return;
  std::sort(type.members.begin(), type.members.end(), [](const Entity& a, const Entity& b) { return a.line < b.line; });
  headers_[type.output].push_back(std::move(type));
}

void Api::member(const Xml& node, std::string_view scope, Entity* owner) {
  const std::string id(node.attribute("id"));
  if (node.attribute("prot") == "private" || node.attribute("kind") == "friend" || places_.contains(id)) return;
  Entity made;
  made.node = &node;
  made.kind = node.attribute("kind");
  made.name = decoded(node.text_of("name"));
  made.scope = scope;
  made.anchor = id.substr(id.rfind("_1") + 2);
  if (!located(made)) return;
  if (owner != nullptr && made.output != owner->output) {  // a class that is reopened elsewhere has one page
    made.output = owner->output;
    made.line = 0;
  }
  register_place(made, id, owner != nullptr);
  for (const Xml* value : node.children) {
    if (value->tag != "enumvalue") continue;
    Entity each;
    each.node = value;
    each.kind = "enumvalue";
    each.name = value->text_of("name");
    const std::string value_id(value->attribute("id"));
    each.anchor = value_id.substr(value_id.rfind("_1") + 2);
    each.output = made.output;
    places_.emplace(value_id, page_of_header(book_.outputs[made.output].path) + "#" + each.anchor);
    made.members.push_back(std::move(each));
  }
  (owner != nullptr ? owner->members : headers_[made.output]).push_back(std::move(made));
}

std::string_view Api::look_up(const Marks& marks, std::uint64_t key, std::string_view name) {
  const auto found = marks.find(key);
  if (found == marks.end()) return {};
  for (const Mark& each : found->second)
    if (each.name == name) return each.place;
  return {};
}

std::string_view Api::declared(std::uint32_t output, std::uint32_t line, std::string_view name) const {
  return look_up(by_output_, key_of(output, line), name);
}

std::string_view Api::declared_in(const Chapter& chapter, std::uint32_t line, std::string_view name) const {
  const auto at = static_cast<std::uint64_t>(&chapter - book_.chapters.data());
  return look_up(by_chapter_, key_of(at, line), name);
}

// --- Words ----------------------------------------------------------------------------------------------------------

std::string Api::words(const Xml& node, std::string_view page) const {
  if (node.tag.empty()) return std::string(node.text);
  std::string inside;
  for (const Xml* each : node.children) inside += words(*each, page);
  const auto in = [&](std::string_view element) {
    return "<" + std::string(element) + ">" + inside + "</" + std::string(element) + ">";
  };
  if (node.tag == "computeroutput") return in("code");
  if (node.tag == "emphasis") return in("em");
  if (node.tag == "bold") return in("strong");
  if (node.tag == "sp") return " ";
  if (node.tag == "codeline") return inside + "\n";
  if (node.tag == "linebreak") return "<br>";
  if (node.tag == "ulink") return "<a href=\"" + std::string(node.attribute("url")) + "\">" + inside + "</a>";
  if (node.tag == "ref") {
    const auto found = places_.find(std::string(node.attribute("refid")));
    return found == places_.end() ? inside : link(page, found->second, inside);
  }
  if (node.tag == "itemizedlist") return in("ul");
  if (node.tag == "orderedlist") return in("ol");
  if (node.tag == "listitem") return "<li>" + paragraphs(node, page) + "</li>";
  if (node.tag == "blockquote") return "<blockquote>" + paragraphs(node, page) + "</blockquote>";
  if (node.tag == "programlisting" || node.tag == "verbatim" || node.tag == "preformatted")
    return "<pre class=\"code\"><code>" + inside + "</code></pre>";
  if (node.tag == "simplesect") return paragraphs(node, page);
  // Doxygen has an element for each entity of HTML: <mdash/>, <times/>.
  return node.children.empty() && node.attributes.empty() ? "&" + std::string(node.tag) + ";" : inside;
}

std::string Api::paragraphs(const Xml& node, std::string_view page) const {
  std::string out, line;
  const auto close = [&] {
    if (!blank(line)) out += "<p>" + trimmed_end(std::move(line)) + "</p>";
    line.clear();
  };
  for (const Xml* each : node.children) {
    if (each->tag == "para") {
      close();
      out += paragraphs(*each, page);
    } else if (is_block(each->tag)) {
      close();
      out += words(*each, page);
    } else {
      line += words(*each, page);
    }
  }
  close();
  return out;
}

std::string Api::description(const Xml& node, std::string_view page) const {
  std::string out;
  for (const std::string_view each : {"briefdescription", "detaileddescription"})
    if (const Xml* found = node.child(each); found != nullptr) out += paragraphs(*found, page);
  return out;
}

// --- Declarations ---------------------------------------------------------------------------------------------------

std::string Api::declaration(const Entity& entity, std::string_view page) const {
  const Xml& node = *entity.node;
  const auto type_of = [&](const Xml& from) {
    const Xml* type = from.child("type");
    std::string out;
    if (type != nullptr)
      for (const Xml* each : type->children) out += words(*each, page);
    return as_written(std::move(out));
  };
  const auto parameter = [&](const Xml& from) {
    std::string out = type_of(from);
    std::string name = from.text_of("declname");
    if (name.empty()) name = from.text_of("defname");
    if (!name.empty()) out += (out.empty() ? "" : " ") + name;
    out += from.text_of("array");
    if (const std::string value = from.text_of("defval"); !value.empty()) out += " = " + as_written(value);
    return out;
  };
  const auto list_of = [&](const Xml& from) {
    std::string out;
    for (const Xml* each : from.children)
      if (each->tag == "param") out += (out.empty() ? "" : ", ") + parameter(*each);
    return out;
  };
  std::string out;
  if (const Xml* given = node.child("templateparamlist"); given != nullptr)
    out += "template &lt;" + list_of(*given) + "&gt;\n";
  const std::string& kind = entity.kind;
  const std::string name = "<b>" + escaped(entity.name) + "</b>";
  const auto with_value = [&](std::string text) {
    const std::string value = node.text_of("initializer");
    if (!value.empty() && value.size() <= longest_value && value.find('\n') == std::string::npos)
      text += (value.starts_with('=') || value.starts_with('{') ? " " : " = ") + value;
    return text;
  };
  if (kind == "class" || kind == "struct" || kind == "union") {
    out += kind + " " + name;
    std::string bases;
    for (const Xml* each : node.children)
      if (each->tag == "basecompoundref") {
        const auto found = places_.find(std::string(each->attribute("refid")));
        const std::string base = as_written(each->all_text());
        bases += (bases.empty() ? " : " : ", ") + std::string(each->attribute("prot")) + " " +
                 (found == places_.end() ? base : link(page, found->second, base));
      }
    return out + bases;
  }
  if (kind == "enum") {
    const std::string type = type_of(node);
    return out + (node.attribute("strong") == "yes" ? "enum class " : "enum ") + name +
           (type.empty() ? "" : " : " + type);
  }
  if (kind == "concept") return out + trimmed_end(as_written(node.text_of("initializer")));
  if (kind == "typedef") return out + "using " + name + " = " + type_of(node) + node.text_of("argsstring");
  if (kind == "define") {
    const bool call = node.child("param") != nullptr;
    return out + "#define " + name + (call ? "(" + list_of(node) + ")" : "");
  }
  if (kind == "enumvalue") return with_value(out + name);
  std::string type = type_of(node);
  if (!type.empty() && !type.ends_with('(')) type += " ";
  for (const auto& [attribute, word] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"static", "static "}, {"explicit", "explicit "}})
    if (node.attribute(attribute) == "yes" && entity.scope.find("::") != std::string::npos &&
        type.find(word) == std::string::npos)
      out += word;
  if (const std::string_view virtual_kind = node.attribute("virt");
      virtual_kind.ends_with("virtual") && virtual_kind != "non-virtual")
    out += "virtual ";
  out += type + name;
  if (kind == "variable") return with_value(out + node.text_of("argsstring"));
  return out + "(" + list_of(node) + ")" + behind_parameters(node.text_of("argsstring"));
}

// --- Pages ----------------------------------------------------------------------------------------------------------

/// A name's line in its header, which leads to the line's chapter.
std::string Api::line_link(const Entity& entity, std::string_view page) const {
  const Run* run = run_at(book_.outputs[entity.output], entity.line);
  if (run == nullptr || run->chunk == Fence::none) return {};
  return "<a class=\"at\" href=\"" + relative(page, place_of(book_, book_.chunks[run->chunk], run->part)) +
         "\" aria-label=\"line " + std::to_string(entity.line) + "\">" + std::to_string(entity.line) + "</a>";
}

std::string Api::origin(const Entity& entity, std::string_view page) const {
  const Output& output = book_.outputs[entity.output];
  const Run* run = run_at(output, entity.line);
  std::string out = "<p class=\"defined\">";
  if (run != nullptr && run->chunk != Fence::none) {
    const Chunk& chunk = book_.chunks[run->chunk];
    const Chapter& chapter = book_.chapters[chunk.parts.at(run->part).chapter];
    out += "Defined in chapter " + chapter.number + ", " +
           link(page, place_of(book_, chunk, run->part),
                escaped(book_.title_of(chunk) == chunk.id ? std::string_view(chapter.title) : book_.title_of(chunk))) +
           "; ";
  }
  return out +
         link(page, page_of_file(output.path) + "#L" + std::to_string(entity.line),
              "line " + std::to_string(entity.line)) +
         "</p>";
}

std::string Api::entity_html(const Entity& entity, std::string_view page, bool headed) const {
  std::string out;
  const std::string kind(kind_word(entity.kind));
  const std::string anchor = " id=\"" + escaped(entity.anchor) + "\"";
  if (headed)
    out += "<h2" + anchor + ">" + escaped(entity.name) + " <small>" + kind + "</small><a class=\"anchor\" href=\"#" +
           escaped(entity.anchor) + "\" aria-label=\"Link to " + escaped(entity.name) + "\">#</a></h2>";
  if (headed) out += origin(entity, page);
  out += "<pre class=\"code\"" + (headed ? std::string() : anchor) + "><code>" + declaration(entity, page) +
         "</code></pre>";
  out += description(*entity.node, page);
  std::string rows;
  for (std::size_t i = 0; i < entity.members.size(); ++i) {
    const Entity& each = entity.members[i];
    if (is_type(each.kind)) continue;  // has a section of its own
    std::string code = declaration(each, page), words = description(*each.node, page);
    // Fields that one declaration names stay together; what is said of the last is said of all.
    const auto continues = [&](const Entity& next) {
      return each.kind == "variable" && next.kind == each.kind && next.line == each.line &&
             next.node->text_of("type") == each.node->text_of("type");
    };
    for (; i + 1 < entity.members.size() && continues(entity.members[i + 1]); ++i) {
      const Entity& next = entity.members[i + 1];
      const std::string shown = declaration(next, page);
      code += ", <b id=\"" + escaped(next.anchor) + "\"" + shown.substr(shown.find("<b>") + 2);
      if (words.empty()) words = description(*next.node, page);
    }
    rows += "<dt id=\"" + escaped(each.anchor) + "\"><code>" + code + "</code>" +
            (each.line > 0 ? line_link(each, page) : "") + "</dt>";
    if (!words.empty()) rows += "<dd>" + words + "</dd>";
  }
  if (rows.ends_with("</dt>")) rows += "<dd></dd>";  // a list of this kind ends in a description
  if (!rows.empty()) out += "<dl class=\"members\">" + rows + "</dl>";
  for (const Entity& each : entity.members)
    if (is_type(each.kind)) out += entity_html(each, page, true);
  return out;
}

std::string Api::header_page(const Pages& pages, std::uint32_t output, const std::vector<Entity>& entities) const {
  const std::string& path = book_.outputs[output].path;
  const std::string page = page_of_header(path);
  std::string scope, lead;
  for (const Entity& each : entities)
    if (scope.empty()) scope = each.scope;
  for (const Chunk& chunk : book_.chunks)
    if (chunk.file == path) lead = book_.title_of(chunk);
  std::string main = "<header class=\"head\"><p class=\"kicker scope\">" + link(page, index, "API") + " · " +
                     escaped(scope) + "</p><h1 class=\"path\">" + escaped(path) + "</h1><p class=\"byline\">" +
                     escaped(lead) + (lead.empty() ? "" : ". ") + link(page, page_of_file(path), "The file") +
                     "</p></header><div class=\"api\">";
  const Entity* before = nullptr;
  for (const Entity& each : entities) {
    const bool overload = before != nullptr && before->kind == "function" && each.kind == "function" &&
                          before->name == each.name && before->scope == each.scope;
    main += entity_html(each, page, !overload);
    before = &each;
  }
  return pages.framed(page, path, "What " + path + " declares.", main + "</div>");
}

std::string Api::index_page(const Pages& pages) const {
  std::map<std::string, std::vector<std::uint32_t>> folders;
  for (const auto& [output, entities] : headers_) {
    const std::string& path = book_.outputs[output].path;
    folders[path.substr(0, path.rfind('/'))].push_back(output);
  }
  std::string main =
      "<header class=\"head\"><h1>API</h1><p class=\"byline\">What the library's " +
      counted(headers_.size(), "header", "headers") +
      " declare, in the words of the code's comments, and where each is defined in the book. Other projects' "
      "Doxygen links here by the <a href=\"rosellm.tag\">tag file</a>.</p></header>";
  for (auto& [folder, outputs] : folders) {
    std::sort(outputs.begin(), outputs.end(),
              [&](std::uint32_t a, std::uint32_t b) { return book_.outputs[a].path < book_.outputs[b].path; });
    main += "<h2 id=\"" + slug(folder) + "\"><code>" + escaped(folder) + "/</code></h2><dl class=\"headers\">";
    for (const std::uint32_t output : outputs) {
      const std::string& path = book_.outputs[output].path;
      main += "<dt>" + link(index, page_of_header(path), escaped(path.substr(folder.size() + 1))) + "</dt><dd>";
      std::string names;
      std::string_view last;
      for (const Entity& each : headers_.at(output)) {
        if (each.name == last || each.name.starts_with("operator")) continue;
        last = each.name;
        names +=
            (names.empty() ? "" : ", ") + link(index, page_of_header(path) + "#" + each.anchor, escaped(each.name));
      }
      main += names + "</dd>";
    }
    main += "</dl>";
  }
  return pages.framed(index, "API", "The library's headers, types and functions.", main);
}

/// Doxygen's tag file, with the names of our pages in the place of those that Doxygen would have written.
std::string Api::tag_file() const {
  std::string out;
  const std::string bytes = tangle::read_file(folder_ + "/rosellm.tag").value_or("");
  std::string_view rest = bytes;
  const auto taken = [&](std::string_view until) {
    const std::size_t end = std::min(rest.find(until), rest.size());
    const std::string_view words = rest.substr(0, end);
    rest.remove_prefix(std::min(end + until.size(), rest.size()));
    return words;
  };
  const auto stem = [](std::string_view file) {
    return file.substr(0, file.ends_with(".html") ? file.size() - 5 : file.size());
  };
  const auto below = [](std::string_view place) { return place.substr(place.find('/') + 1); };
  while (!rest.empty()) {
    const std::size_t file = rest.find("<filename>"), anchor = rest.find("<anchorfile>");
    if (file == anchor) {  // neither
      out += rest;
      break;
    }
    if (file < anchor) {
      out += taken("<filename>");
      const auto found = places_.find(std::string(stem(taken("</filename>"))));
      const std::string_view place = found == places_.end() ? index : std::string_view(found->second);
      out.append("<filename>").append(below(place.substr(0, place.find('#')))).append("</filename>");
      continue;
    }
    out += taken("<anchorfile>");
    const std::string page(stem(taken("</anchorfile>")));
    taken("<anchor>");
    const std::string id(taken("</anchor>"));
    const auto found = places_.find(page + "_1" + id);
    const std::string_view place = found == places_.end() ? index : std::string_view(found->second);
    out.append("<anchorfile>").append(below(place.substr(0, place.find('#')))).append("</anchorfile>\n      <anchor>");
    out.append(place.find('#') == std::string_view::npos ? std::string_view{} : place.substr(place.find('#') + 1))
        .append("</anchor>");
  }
  return out;
}

std::string Api::lead_to(const Output& output, std::string_view page) const {
  if (!headers_.contains(static_cast<std::uint32_t>(&output - book_.outputs.data()))) return {};
  return "<p class=\"byline\">" + link(page, page_of_header(output.path), "What it declares") + "</p>";
}

void Api::add_pages(Site& site, const Pages& pages) const {
  if (headers_.empty()) return;
  for (const auto& [output, entities] : headers_)
    site[page_of_header(book_.outputs[output].path)] = header_page(pages, output, entities);
  site[std::string(index)] = index_page(pages);
  site["api/rosellm.tag"] = tag_file();
}

}  // namespace weave
