#include "names.h"

#include <algorithm>

#include "files.h"
#include "highlight.h"

namespace weave {
namespace {

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {
    for (const Token& each : lex(text, "cpp"))
      if (each.kind != TokenKind::comment) tokens_.push_back(each);
  }

  std::vector<Name> run() {
    while (at_ < tokens_.size()) step();
    return std::move(found_);
  }

 private:
  struct Scope {
    std::string name;
    bool type = false;
  };

  std::string_view word(std::size_t i) const { return i < tokens_.size() ? tokens_[i].of(text_) : std::string_view{}; }
  bool name(std::size_t i) const { return i < tokens_.size() && tokens_[i].kind == TokenKind::name; }

  void step() {
    const std::string_view here = word(at_);
    if (here == "namespace") return space();
    if (here == "enum" || here == "struct" || here == "class" || here == "union") return type(here);
    if ((here == "using" || here == "concept") && name(at_ + 1) && word(at_ + 2) == "=") {
      declare(at_ + 1, here == "using" ? "alias" : "concept");
      return skip_to_end();
    }
    if (here == "#define" && name(at_ + 1)) {
      declare(at_ + 1, "macro");
      at_ += 2;
      return;
    }
    if (here == "template" && word(at_ + 1) == "<") {
      at_ = past(at_ + 1, '<', '>');
      return;
    }
    if (here == "}") {
      if (!scopes_.empty()) scopes_.pop_back();
    } else if (here == "{") {
      at_ = past(at_, '{', '}');
      constant_ = false;
      return;
    } else if (here == "(") {
      at_ = past(at_, '(', ')');
      return;
    } else if (here == ";") {
      constant_ = false;
    } else if (here == "constexpr") {
      constant_ = true;
    } else if (name(at_)) {
      return named();
    }
    ++at_;
  }

  void named() {
    const std::string_view before = at_ == 0 ? std::string_view{} : word(at_ - 1), after = word(at_ + 1);
    const bool typed =
        at_ > 0 && (name(at_ - 1) || before == ">" || before == "&" || before == "*" || before == "const");
    const bool own = !scopes_.empty() && scopes_.back().name == word(at_);  // a constructor
    if (after == "(" && typed && !own) {
      declare(at_, !scopes_.empty() && scopes_.back().type ? "member" : "function");
      return skip_to_end();
    }
    if (after == "(" && (own || before == ":")) return skip_to_end();
    if ((after == "=" || after == "{" || after == "[") && constant_ && typed) {
      declare(at_, "constant");
      return skip_to_end();
    }
    if (after == "=") return skip_to_end();
    ++at_;
  }

  void space() {
    std::string qualified;
    std::size_t i = at_ + 1;
    for (; i < tokens_.size() && word(i) != "{" && word(i) != ";" && word(i) != "="; ++i) qualified += word(i);
    if (word(i) == "{") scopes_.push_back({qualified, false});
    at_ = i + 1;
  }

  void type(std::string_view keyword) {
    std::size_t i = at_ + 1;
    if (word(i) == "class" || word(i) == "struct") ++i;
    while (word(i) == "alignas" || word(i) == "[") i = word(i) == "[" ? past(i, '[', ']') : past(i + 1, '(', ')');
    const std::size_t named_at = i;
    for (; i < tokens_.size(); ++i) {
      const std::string_view here = word(i);
      if (here == "{" || here == ";" || here == "(" || here == ")" || here == "=") break;
    }
    if (word(i) != "{" || !name(named_at)) {
      at_ = word(i) == ";" ? i + 1 : named_at;  // a declaration ahead, a parameter, a variable
      if (at_ == named_at) ++at_;
      return;
    }
    declare(named_at, "type");
    if (keyword == "enum") {
      at_ = past(i, '{', '}');
    } else {
      scopes_.push_back({std::string(word(named_at)), true});
      at_ = i + 1;
    }
  }

  /// To behind the `;` or the body that ends what began here.
  void skip_to_end() {
    constant_ = false;
    while (at_ < tokens_.size()) {
      const std::string_view here = word(at_);
      if (here == "(") {
        at_ = past(at_, '(', ')');
      } else if (here == "{") {
        at_ = past(at_, '{', '}');
        if (word(at_) != "," && word(at_) != "{" && word(at_) != ";") return;
      } else if (here == ";") {
        ++at_;
        return;
      } else if (here == "}") {
        return;
      } else {
        ++at_;
      }
    }
  }

  std::size_t past(std::size_t i, char open, char close) const {
    int depth = 0;
    for (; i < tokens_.size(); ++i) {
      const std::string_view here = word(i);
      if (here.size() != 1) continue;
      if (here[0] == open) ++depth;
      if (here[0] == close && --depth == 0) return i + 1;
      if (open == '<' && (here[0] == ';' || here[0] == '{')) return i;
    }
    return i;
  }

  void declare(std::size_t i, std::string_view kind) {
    Name made;
    for (const Scope& each : scopes_)
      if (!each.name.empty()) made.qualified += each.name + "::";
    made.qualified += word(i);
    made.kind = kind;
    made.line = 1 + static_cast<std::uint32_t>(
                        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(tokens_[i].begin), '\n'));
    found_.push_back(std::move(made));
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::vector<Scope> scopes_;
  std::vector<Name> found_;
  std::size_t at_ = 0;
  bool constant_ = false;
};

}  // namespace

std::vector<Name> declarations(std::string_view text) { return Scan(text).run(); }

const Run* run_at(const Output& output, std::uint32_t line) {
  for (const Run& run : output.runs)
    if (line >= run.line && line < run.line + run.lines) return &run;
  return nullptr;
}

std::string_view simple_of(const Name& name) {
  return std::string_view(name.qualified).substr(name.qualified.rfind(':') + 1);
}

void Names::read(const Book& book, const std::string& folder) {
  std::vector<std::uint32_t> order;
  for (const bool headers : {true, false})
    for (std::uint32_t i = 0; i < book.outputs.size(); ++i) {
      const Output& output = book.outputs[i];
      const bool header = output.path.ends_with(".h") || output.path.ends_with(".cuh");
      if (output.kind == "source" && header == headers && is_cpp(language_of(output.path))) order.push_back(i);
    }
  std::set<std::string> known;
  for (const std::uint32_t i : order) {
    const std::string bytes = tangle::read_file(folder + "/" + book.outputs[i].path).value_or("");
    for (Name& each : declarations(bytes)) {
      each.output = i;
      if (const Run* run = run_at(book.outputs[i], each.line); run != nullptr && run->chunk != Fence::none) {
        each.chunk = run->chunk;
        each.part = run->part;
      }
      by_place_[{i, each.line}].push_back(each);
      if (!known.insert(each.qualified).second) continue;
      const std::string simple(simple_of(each));
      names_.emplace(simple, std::move(each));
    }
  }
}

const Name* Names::declared(std::uint32_t output, std::uint32_t line, std::string_view word) const {
  const auto found = by_place_.find({output, line});
  if (found == by_place_.end()) return nullptr;
  for (const Name& each : found->second)
    if (simple_of(each) == word && each.chunk != Fence::none) return &each;
  return nullptr;
}

const Name* Names::find(std::string_view word, char before, char after) const {
  constexpr std::size_t shortest = 4;
  if (word.size() < shortest) return nullptr;
  const auto [first, last] = names_.equal_range(word);
  if (first == last || std::next(first) != last || first->second.chunk == Fence::none) return nullptr;
  const Name& name = first->second;
  const bool called = after == '(' || after == '<';
  const bool member = before == '.' || before == '>';
  if (name.kind == "member") return member && called && word.size() > shortest ? &name : nullptr;
  if (member) return nullptr;
  return name.kind == "function" && !called ? nullptr : &name;
}

}  // namespace weave
