#include "filter.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "ast.h"
#include "bench.h"
#include "citations.h"
#include "claims.h"
#include "files.h"
#include "html.h"
#include "live.h"
#include "text.h"

namespace weave {
namespace {

std::string_view without_end(std::string_view body) {
  while (body.ends_with('\n')) body.remove_suffix(1);
  return body;
}

/// Blocks and inlines are lists of nodes; other arrays of the tree (attributes, cells) are not.
bool is_list_of_nodes(const json::array& items) {
  return !items.empty() &&
         std::all_of(items.begin(), items.end(), [](const json::value& each) { return !ast::tag(each).empty(); });
}

class Filter {
 public:
  Filter(const Workshop& workshop, const Chapter& chapter) : w_(workshop), chapter_(chapter), path_(chapter.page()) {}

  Page run(json::value tree) {
    json::array& blocks = tree.as_object()["blocks"].as_array();
    drop_title(blocks);
    list(blocks);
    if (!page_.cited.empty()) blocks.push_back(ast::node("Div", json::array{ast::attributes("refs"), json::array{}}));
    if (!pending_.empty())
      error("unused-label", "<!-- " + pending_, "nothing follows that '" + pending_ + "' could name");
    tree.as_object()["meta"] = json::object{};
    page_.tree = std::move(tree);
    return std::move(page_);
  }

 private:
  void error(std::string_view code, std::string_view where, std::string text) {
    w_.diagnostics.error(code, find_in(chapter_, where), std::move(text));
  }

  /// The page's head shows the title.
  static void drop_title(json::array& blocks) {
    for (auto it = blocks.begin(); it != blocks.end(); ++it) {
      if (ast::tag(*it) != "Header") continue;
      if (ast::content(*it).as_array()[0].as_int64() == 1) blocks.erase(it);
      return;
    }
  }

  void descend(json::value& value) {
    if (value.is_array()) {
      json::array& items = value.get_array();
      if (is_list_of_nodes(items)) return list(items);
      for (json::value& each : items) descend(each);
    } else if (value.is_object()) {
      if (json::value* inside = value.get_object().if_contains("c")) descend(*inside);
    }
  }

  void list(json::array& items) {
    std::vector<std::string> keys;
    make_citations(items, keys);
    for (const std::string& key : keys) cite(key);
    json::array made;
    for (json::value& each : items) node(std::move(each), made);
    items = std::move(made);
  }

  void cite(const std::string& key) {
    if (!w_.stores.references.contains(key))
      return error("unknown-reference", "@" + key, "there is no reference '" + key + "' in citations/references.yaml");
    if (std::find(page_.cited.begin(), page_.cited.end(), key) == page_.cited.end()) page_.cited.push_back(key);
  }

  void node(json::value each, json::array& out) {
    const std::string tag(ast::tag(each));
    if (tag == "RawBlock") return raw_block(std::move(each), out);
    if (tag == "Header") return header(std::move(each), out);
    if (tag == "CodeBlock") return code_block(each, out);
    if (tag == "Div") return division(std::move(each), out);
    if (tag == "Table") return table(std::move(each), out);
    if (tag == "Math") return formula(each, out);
    if (tag == "Link") return link(std::move(each), out);
    if (tag == "Image") return out.push_back(ast::raw_inline(image(each)));
    if (tag == "Note") return footnote(each, out);
    if (tag == "Str") word(view(ast::content(each).as_string()));
    if ((tag == "Para" || tag == "Plain") && alone(each, out)) return;
    descend(each);
    out.push_back(std::move(each));
  }

  void word(std::string_view word) {
    ++page_.words;
    // Pandoc takes `$` for a formula only where its braces close.
    if (const std::size_t at = word.find("$\\"); at != std::string_view::npos)
      error("bad-math", word, "a formula that does not close: '" + std::string(word.substr(at)) + "'");
  }

  /// A paragraph that is one display or one figure.
  bool alone(json::value& paragraph, json::array& out) {
    json::array& inlines = ast::content(paragraph).as_array();
    if (inlines.size() != 1) return false;
    const std::string_view tag = ast::tag(inlines[0]);
    if (tag == "Math" && ast::tag(ast::content(inlines[0]).as_array()[0]) == "DisplayMath") {
      const std::string label = take("eq:");
      std::string html = "<div class=\"equation\"" + (label.empty() ? "" : " id=\"" + label + "\"") + "><div>" +
                         math(inlines[0]) + "</div>";
      if (!label.empty())
        html += "<a class=\"number\" href=\"#" + label + "\">(" + w_.labels.find(chapter_, label)->number + ")</a>";
      out.push_back(w_.plain ? std::move(paragraph) : ast::raw_block(html + "</div>"));
      return true;
    }
    if (tag == "Image") {
      const std::string label = take("fig:");
      const json::array& parts = ast::content(inlines[0]).as_array();
      const std::string caption(view(parts[2].as_array()[1].as_string()));
      std::string html =
          "<figure class=\"figure\"" + (label.empty() ? "" : " id=\"" + label + "\"") + ">" + image(inlines[0]);
      if (!label.empty() || !caption.empty()) {
        html += "<figcaption>";
        if (!label.empty()) html += "<b>Figure " + w_.labels.find(chapter_, label)->number + "</b> ";
        html += escaped(caption) + "</figcaption>";
      }
      out.push_back(ast::raw_block(html + "</figure>"));
      return true;
    }
    return false;
  }

  /// The label that stands before a thing of this kind.
  std::string take(std::string_view kind) {
    if (!pending_.starts_with(kind)) return {};
    return std::exchange(pending_, {});
  }

  void raw_block(json::value each, json::array& out) {
    const std::string_view raw = view(ast::content(each).as_array()[1].as_string());
    if (const std::string_view label = label_in_comment(raw); !label.empty()) {
      if (!pending_.empty())
        error("unused-label", "<!-- " + pending_, "nothing follows that '" + pending_ + "' could name");
      pending_ = label;
      return;
    }
    if (tangle::trimmed(raw).starts_with("<!--")) return;
    out.push_back(std::move(each));
  }

  void header(json::value each, json::array& out) {
    json::array& parts = ast::content(each).as_array();
    const std::string id(ast::id_of(parts[1]));
    quiet_ = true;
    descend(parts[2]);
    quiet_ = false;
    const auto level = static_cast<int>(parts[0].as_int64());
    page_.headings.push_back({level, id, words_html(parts[2])});
    json::array& inlines = parts[2].as_array();
    if (!w_.plain) {
      inlines.push_back(
          ast::raw_inline("<a class=\"anchor\" href=\"#" + id + "\" aria-label=\"Link to this section\">#</a>"));
    }
    out.push_back(std::move(each));
  }

  static std::string words_html(const json::value& inlines) {
    std::string html;
    for (const json::value& each : inlines.as_array()) {
      const std::string_view tag = ast::tag(each);
      if (tag == "RawInline") html += view(ast::content(each).as_array()[1].as_string());
      else if (tag == "Code")
        html += "<code>" + escaped(view(ast::content(each).as_array()[1].as_string())) + "</code>";
      else html += escaped(ast::plain(json::array{each}));
    }
    return html;
  }

  void code_block(const json::value& each, json::array& out) {
    const std::string_view body = view(ast::content(each).as_array()[1].as_string());
    // Pandoc also gives blocks that are only indented; fences come in the order of book.json.
    const auto same = [&](const Fence& fence) { return body_of(chapter_, fence) == without_end(body); };
    std::size_t found = next_fence_;
    while (found < chapter_.fences.size() && !same(chapter_.fences[found])) ++found;
    if (found == chapter_.fences.size()) {
      out.push_back(ast::raw_block(w_.code.listing(body, {})));
      return;
    }
    next_fence_ = found + 1;
    const Fence& fence = chapter_.fences[found];
    if (fence.role == "table") {
      if (w_.stores.bench(fence.id) == nullptr)
        error("unknown-bench", "{#" + fence.id, "there is no bench '" + fence.id + "' in benchmarks/benches.yaml");
      out.push_back(ast::raw_block(bench_table(w_.stores, fence.id, path_)));
      return;
    }
    page_.code_lines += static_cast<std::size_t>(std::count(body.begin(), body.end(), '\n')) + 1;
    out.push_back(ast::raw_block(w_.code.card(chapter_, fence)));
  }

  void division(json::value each, json::array& out) {
    json::array& parts = ast::content(each).as_array();
    const std::string id(ast::id_of(parts[0]));
    const bool check = ast::has_class(parts[0], "check"), exercise = ast::has_class(parts[0], "exercise");
    const std::string answer(ast::key_of(parts[0], "answer"));
    json::array& blocks = parts[1].as_array();
    if (ast::has_class(parts[0], "note")) {
      list(blocks);
      out.push_back(ast::raw_block("<aside class=\"note\">"));
      for (json::value& block : blocks) out.push_back(std::move(block));
      out.push_back(ast::raw_block("</aside>"));
      return;
    }
    if (ast::has_class(parts[0], "live")) return live(parts, out);
    if (!check && !exercise) {
      descend(parts[1]);
      out.push_back(std::move(each));
      return;
    }
    list(blocks);
    const std::string anchor = id.empty() ? id : anchor_of_question(w_.book, id);
    const Label* label = w_.labels.find(chapter_, anchor);
    const std::string number = label == nullptr ? std::string() : label->number;
    std::string open = "<div class=\"" + std::string(check ? "check" : "exercise") + "\"" +
                       (id.empty() ? "" : " id=\"" + anchor + "\"") + ">";
    open += check ? "<label class=\"tick\"><input type=\"checkbox\" data-tick=\"" + id + "\"><span>Question " + number +
                        "</span></label>"
                  : "<p class=\"label\">Exercise " + number + "</p>";
    out.push_back(ast::raw_block(open));
    for (json::value& block : blocks) out.push_back(std::move(block));
    out.push_back(ast::raw_block(answer_html(answer) + "</div>"));
  }

  void live(json::array& parts, json::array& out) {
    const std::string id(ast::id_of(parts[0])), kind(ast::key_of(parts[0], "figure")),
        url(ast::key_of(parts[0], "state"));
    const std::string path =
        (std::filesystem::path(chapter_.source->path).parent_path() / url).lexically_normal().string();
    const std::optional<std::string> bytes = tangle::read_file(path);
    if (!bytes) return error("missing-figure", "state=\"" + url, "there is no '" + path + "'");
    std::string element;
    try {
      element = live_figure(kind, json::parse(*bytes));
    } catch (const std::exception& wrong) {
      return error("bad-figure", "state=\"" + url, "'" + path + "': " + wrong.what());
    }
    page_.live = true;
    json::array& blocks = parts[1].as_array();
    list(blocks);
    out.push_back(ast::raw_block("<figure class=\"live\" id=\"" + escaped(id) + "\"><figcaption><div>"));
    for (json::value& block : blocks) out.push_back(std::move(block));
    out.push_back(ast::raw_block("</div></figcaption>" + element + "</figure>"));
  }

  std::string answer_html(const std::string& answer) {
    if (answer.empty()) return {};
    const Chunk* chunk = w_.book.chunk(answer);
    if (chunk == nullptr) {
      error("unknown-answer", "answer=\"" + answer, "the answer names a chunk '" + answer + "' that does not exist");
      return {};
    }
    return "<p class=\"answer\">Computed by the test <a href=\"" +
           escaped(relative(path_, place_of(w_.book, *chunk, 0))) + "\">" + escaped(w_.book.title_of(*chunk)) +
           "</a></p>";
  }

  void table(json::value each, json::array& out) {
    const std::string label = take("tbl:");
    const bool before = std::exchange(quiet_, true);
    descend(ast::content(each));
    quiet_ = before;
    const std::string number = label.empty() ? std::string() : w_.labels.find(chapter_, label)->number;
    ++tables_;
    std::string open =
        "<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"" +
        (number.empty() ? "Table " + std::to_string(tables_) + " of this page, unnumbered" : "Table " + number) + "\"" +
        (label.empty() ? "" : " id=\"" + label + "\"") + ">";
    if (!number.empty()) open += "<p class=\"label\">Table " + number + "</p>";
    out.push_back(ast::raw_block(open));
    out.push_back(std::move(each));
    out.push_back(ast::raw_block("</div>"));
  }

  std::string math(const json::value& each) {
    const json::array& parts = ast::content(each).as_array();
    const std::string_view tex = view(parts[1].as_string());
    const Math::Result& result = w_.math.get(tex, ast::tag(parts[0]) == "DisplayMath");
    if (!result.error.empty()) {
      tangle::Span place = find_in(chapter_, tex);
      place.begin = std::min(place.begin + static_cast<std::uint32_t>(result.position), place.end);
      place.end = place.begin;
      if (reported_.insert(std::string(tex)).second) w_.diagnostics.error("bad-math", place, result.error);
    }
    return result.html;
  }

  void formula(json::value& each, json::array& out) {
    ++page_.words;
    constexpr std::size_t long_tex = 40;  // such a formula scrolls by itself instead of widening a phone's page
    const bool is_long = ast::content(each).as_array()[1].as_string().size() > long_tex;
    const std::string html = math(each);
    out.push_back(ast::raw_inline(is_long ? "<span class=\"long\">" + html + "</span>" : html));
  }

  void link(json::value each, json::array& out) {
    json::array& parts = ast::content(each).as_array();
    const std::string url(view(parts[2].as_array()[0].as_string()));
    const std::size_t colon = url.find(':');
    const std::string kind = url.substr(0, colon == std::string::npos ? 0 : colon);
    const bool before = std::exchange(quiet_, true);
    descend(parts[1]);
    quiet_ = before;
    json::array& words = parts[1].as_array();
    if (kind == "fact" || kind == "bench" || kind == "test" || kind == "term")
      return claim(kind, url.substr(colon + 1), words, out);

    const Target target = w_.linker.resolve(chapter_, url);
    if (!target.error.empty()) error("broken-link", "](" + url, target.error);
    if (target.label != nullptr && !target.label->number.empty()) {
      const Label& label = *target.label;
      const std::string shown = label.kind == Label::Kind::equation   ? "(" + label.number + ")"
                                : label.kind == Label::Kind::figure   ? "(figure " + label.number + ")"
                                : label.kind == Label::Kind::table    ? "(table " + label.number + ")"
                                : label.kind == Label::Kind::exercise ? "(exercise " + label.number + ")"
                                                                      : std::string();
      if (!shown.empty()) {
        if (!words.empty()) words.push_back(ast::space());
        words.push_back(ast::str(shown));
      }
    }
    if (target.chapter != nullptr && target.chapter != &chapter_ && parts[2].as_array()[1].as_string().empty())
      parts[2].as_array()[1] = target.chapter->number + " " + target.chapter->title;
    parts[2].as_array()[0] = target.href;
    out.push_back(std::move(each));
  }

  void wrapped(std::string_view open, json::array& words, std::string_view close, json::array& out) {
    out.push_back(ast::raw_inline(open));
    for (json::value& word : words) out.push_back(std::move(word));
    out.push_back(ast::raw_inline(close));
  }

  void claim(std::string_view kind, const std::string& rest, json::array& words, json::array& out) {
    const std::size_t hash = rest.find('#');
    const std::string id = rest.substr(0, hash),
                      key = hash == std::string::npos ? std::string() : rest.substr(hash + 1);
    const std::string written = "](" + std::string(kind) + ":" + rest;
    if (kind == "fact") return fact(id, written, words, out);
    if (kind == "bench") return measured(id, key, written, words, out);
    if (kind == "term") {
      const Term* term = w_.stores.term(id);
      if (term == nullptr)
        return error("unknown-term", written, "there is no term '" + id + "' in citations/glossary.yaml");
      return wrapped("<a class=\"term\" href=\"" + relative(path_, "glossary.html#" + id) + "\" title=\"" +
                         escaped(term->definition) + "\">",
                     words, "</a>", out);
    }
    const Chunk* chunk = w_.book.chunk(id);
    if (chunk == nullptr)
      return error("unknown-test", written, "there is no chunk '" + id + "' that could have computed this");
    wrapped("<a class=\"value\" href=\"" + escaped(relative(path_, place_of(w_.book, *chunk, 0))) +
                "\" title=\"Computed by the test: " + escaped(w_.book.title_of(*chunk)) + "\">",
            words, "</a>", out);
  }

  void fact(const std::string& id, const std::string& written, json::array& words, json::array& out) {
    const Fact* fact = w_.stores.fact(id);
    if (fact == nullptr) return error("unknown-fact", written, "there is no fact '" + id + "' in citations/facts/");
    const bool first = std::find(page_.facts.begin(), page_.facts.end(), id) == page_.facts.end();
    if (first) page_.facts.push_back(id);
    const std::string grade(fact->get("grade"));
    std::string close = "</a>";
    if (first && !quiet_ && !w_.plain)
      close += side_note("fact-" + id, grade, grade + ", " + std::string(grade_word(grade)), fact_note(*fact, path_));
    else
      close +=
          "<sup class=\"grade " + grade + "\" title=\"" + std::string(grade_word(grade)) + "\">" + grade + "</sup>";
    wrapped("<a class=\"fact\" href=\"" + escaped(relative(path_, place_of_fact(*fact))) + "\" title=\"" +
                escaped(fact_words(*fact)) + "\">",
            words, close, out);
  }

  void measured(const std::string& id, const std::string& key, const std::string& written, json::array& words,
                json::array& out) {
    const Bench* bench = w_.stores.bench(id);
    if (bench == nullptr || bench->records.empty())
      return error("unknown-bench", written, "there is no record of bench '" + id + "' in benchmarks/results/");
    const Record& record = bench->records.back();
    if (dig(record.fields, key.empty() ? "median" : key) == nullptr)
      return error("unknown-bench", written, "the record of '" + id + "' has no '" + key + "'");
    std::string close = "</a>";
    const bool first = measured_.insert(id).second;
    const std::string about =
        "Measured: " + id + ", " + machine_and_date(record) + (record.stale ? ". The code has changed since." : "");
    if (first && !quiet_ && !w_.plain)
      close += side_note("bench-note-" + id, "R", "R, measured here",
                         "<a class=\"what\" href=\"" + relative(path_, "benches.html#result-" + id) +
                             "\">Measured</a> · " + escaped(id) + ", " + escaped(machine_and_date(record)) +
                             (record.stale ? ". <em>The code has changed since.</em>" : ""));
    wrapped("<a class=\"measured\" href=\"" + relative(path_, "benches.html#result-" + id) + "\" title=\"" +
                escaped(about) + "\">",
            words, close, out);
  }

  std::string image(const json::value& each) {
    const json::array& parts = ast::content(each).as_array();
    const std::string url(view(parts[2].as_array()[0].as_string()));
    const std::string alt = ast::plain(parts[1]);
    namespace fs = std::filesystem;
    const std::string path = (fs::path(chapter_.source->path).parent_path() / url).lexically_normal().string();
    if (alt.empty()) error("no-alt-text", "![](" + url, "an image without alternative text");
    const std::optional<std::string> bytes = tangle::read_file(path);
    if (!bytes) {
      error("missing-figure", "](" + url, "there is no '" + path + "'");
      return {};
    }
    if (!url.ends_with(".svg")) {
      w_.linker.copy_file(path);
      return "<img src=\"" + escaped(relative(path_, "figures/" + fs::path(path).filename().string())) + "\" alt=\"" +
             escaped(alt) + "\" loading=\"lazy\">";
    }
    // Inside the page, a drawing follows its theme.
    const std::size_t open = bytes->find("<svg");
    if (open == std::string::npos) {
      error("missing-figure", "](" + url, "'" + path + "' is no SVG");
      return {};
    }
    return "<svg role=\"img\" aria-label=\"" + escaped(alt) + "\"" + bytes->substr(open + 4);
  }

  void footnote(const json::value& each, json::array& out) {
    ++notes_;
    json::value blocks = ast::content(each);
    const bool before = std::exchange(quiet_, true);
    descend(blocks);
    quiet_ = before;
    const std::string number = std::to_string(notes_);
    out.push_back(ast::raw_inline("<span class=\"tip\"><label for=\"note-" + number + "\" class=\"mark\">" + number +
                                  "</label><input type=\"checkbox\" id=\"note-" + number +
                                  "\" aria-label=\"Show note " + number + "\"><small class=\"side\"><sup>" + number +
                                  "</sup> "));
    for (json::value& block : blocks.as_array()) {
      if (ast::tag(block) != "Para" && ast::tag(block) != "Plain") continue;
      for (json::value& inside : ast::content(block).as_array()) out.push_back(std::move(inside));
      out.push_back(ast::space());
    }
    out.push_back(ast::raw_inline("</small></span>"));
  }

  const Workshop& w_;
  const Chapter& chapter_;
  const std::string path_;
  Page page_;
  std::string pending_;  ///< a label whose thing has not come yet
  std::size_t next_fence_ = 0;
  bool quiet_ = false;  ///< in headings, tables and links there are no side notes
  int tables_ = 0, notes_ = 0;
  std::set<std::string> measured_, reported_;
};

}  // namespace

void collect_math(const json::value& tree, Math& math) {
  ast::walk(tree, [&](const json::value& node) {
    if (ast::tag(node) != "Math") return;
    const json::array& parts = ast::content(node).as_array();
    math.want(view(parts[1].as_string()), ast::tag(parts[0]) == "DisplayMath");
  });
}

Page filter(const Workshop& workshop, const Chapter& chapter, json::value tree) {
  return Filter(workshop, chapter).run(std::move(tree));
}

}  // namespace weave
