// Parse statements.

#include <algorithm>
#include <utility>

#include "rose/text/template_parser.h"

namespace rose::text::jinja {

// Read text, prints and statements until an end tag.
Block Parser::block(std::vector<std::string_view> ends) {
  Block out;
  while (peek().token != Token::end) {
    Stmt stmt;
    stmt.at = peek().at;
    if (peek().token == Token::data) {
      stmt.text = take().text;
    } else if (peek().token == Token::variable_begin) {
      take();
      stmt.kind = StmtKind::print;
      stmt.expr = tuple_or_expression(true);
      if (peek().token != Token::variable_end) {
        stop("expected '}}'", "is an operator missing, or a quote not closed?");
      }
      take();
    } else {
      take();  // {%
      const bool ended =
          std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return at_name(end); });
      if (ended) return out;
      stmt = statement();
      expect_block_end();
    }
    out.push_back(std::move(stmt));
  }
  if (!ends.empty()) {
    const auto closing = std::find_if(ends.begin(), ends.end(),
                                      [](std::string_view end) { return end.starts_with("end"); });
    stop("the template ends before {% " + std::string(*closing) + " %}");
  }
  return out;
}

Block Parser::run() {
  Block out = block({});
  if (!unknown_.empty()) stop_at(unknown_[0].first, "there is no " + unknown_[0].second);
  return out;
}

Block parse(std::string_view source) {
  return Parser(tokenize(source)).run();
}

// Tell statements by their first word.
Stmt Parser::statement() {
  const Nest nest(nesting_);
  if (nesting_ > kDataNesting / 2) stop("blocks are nested too deep");
  Stmt out;
  out.at = peek().at;
  const std::string tag = expect_name();
  if (tag == "if") {
    if_statement(out);
  } else if (tag == "for") {
    for_statement(out);
  } else if (tag == "set") {
    set_statement(out);
  } else if (tag == "macro") {
    macro_statement(out);
  } else if (tag == "call") {
    call_statement(out);
  } else if (tag == "with") {
    with_statement(out);
  } else if (tag == "filter") {
    out.kind = StmtKind::filter_block;
    out.expr = filter(nullptr);
    while (accept_op("|")) out.expr = filter(std::move(out.expr));
    accept_op(":");
    expect_block_end();
    const bool lazy = std::exchange(lazy_names_, false);
    out.body = block({"endfilter"});
    lazy_names_ = lazy;
    take();
  } else if (tag == "generation") {
    out.kind = StmtKind::scope;
    out.body = macro_body(out, "endgeneration");
  } else if (tag == "break" || tag == "continue") {
    out.kind = tag == "break" ? StmtKind::break_loop : StmtKind::continue_loop;
    if (loops_ == 0) stop_at(out.at, "'" + tag + "' outside of a loop");
  } else if (tag == "print") {
    out.kind = StmtKind::print;
    Expr joined;
    joined.kind = ExprKind::concat;
    joined.at = out.at;
    while (peek().token != Token::block_end) {
      if (!joined.parts.empty()) expect_op(",");
      joined.parts.push_back(expression());
    }
    out.expr = finish(std::move(joined));
  } else {
    static constexpr std::string_view kLeftOut[] = {"block",  "extends", "include",
                                                    "import", "from",    "autoescape"};
    if (std::count(std::begin(kLeftOut), std::end(kLeftOut), tag)) {
      stop_at(out.at, "'" + tag + "' is not supported in a chat template",
              "a chat template is one text: it cannot load or inherit from another");
    }
    stop_at(out.at, "unknown tag '" + tag + "'");
  }
  return out;
}

// Read if, elif and else.
void Parser::if_statement(Stmt& out) {
  out.kind = StmtKind::branch;
  const bool lazy = std::exchange(lazy_names_, true);
  do {
    ExprPtr test = tuple_or_expression(false);
    accept_op(":");
    expect_block_end();
    out.branches.emplace_back(std::move(test), block({"elif", "else", "endif"}));
  } while (accept_name("elif"));
  if (accept_name("else")) {
    accept_op(":");
    expect_block_end();
    out.otherwise = block({"endif"});
  }
  lazy_names_ = lazy;
  take();  // endif
}

// Read a loop, its filter and its else.
void Parser::for_statement(Stmt& out) {
  out.kind = StmtKind::loop;
  ++loop_targets_;
  out.target = target(false, true);
  --loop_targets_;
  if (!accept_name("in")) stop("expected 'in', found another token");
  const bool lazy = std::exchange(lazy_names_, false);
  out.expr = tuple_or_expression(false, true);
  if (accept_name("if")) out.filter = expression();
  out.recursive = accept_name("recursive");
  accept_op(":");
  expect_block_end();
  const int loop_uses = uses_[0];
  ++loops_, ++loop_targets_;
  out.body = block({"endfor", "else"});
  --loops_;
  out.uses_loop = out.recursive || uses_[0] > loop_uses;
  if (accept_name("else")) {
    accept_op(":");
    expect_block_end();
    out.otherwise = block({"endfor"});
  }
  --loop_targets_;
  lazy_names_ = lazy;
  take();  // endfor
}

// Read an assignment of a value, or of a rendered block.
void Parser::set_statement(Stmt& out) {
  out.target = target(true, false);
  if (accept_op("=")) {
    out.kind = StmtKind::set;
    out.expr = tuple_or_expression(true);
    return;
  }
  out.kind = StmtKind::set_block;
  while (accept_op("|")) out.filter = filter(std::move(out.filter));
  accept_op(":");
  expect_block_end();
  const bool lazy = std::exchange(lazy_names_, false);
  out.body = block({"endset"});
  lazy_names_ = lazy;
  take();
}

void Parser::with_statement(Stmt& out) {
  out.kind = StmtKind::with;
  while (peek().token != Token::block_end) {
    if (!out.bindings.empty()) expect_op(",");
    Target name = target(false, false);
    expect_op("=");
    out.bindings.emplace_back(std::move(name), expression());
  }
  expect_block_end();
  const bool lazy = std::exchange(lazy_names_, false);
  out.body = block({"endwith"});
  lazy_names_ = lazy;
  take();
}

// Read what is assigned to.
Target Parser::target(bool with_namespace, bool stop_at_in) {
  Target tuple;
  tuple.kind = Target::Kind::tuple;
  tuple.at = peek().at;
  bool comma = false;
  const auto ends = [&] {
    const Token t = peek().token;
    return t == Token::block_end || at_op(")") || (stop_at_in && at_name("in"));
  };
  while (!ends()) {
    tuple.items.push_back(single_target(with_namespace));
    if (!accept_op(",")) break;
    comma = true;
  }
  if (!comma && tuple.items.empty()) stop("expected a name to assign to");
  if (comma) return tuple;
  Target only = std::move(tuple.items[0]);
  return only;
}

Target Parser::single_target(bool with_namespace) {
  const Nest nest(nesting_);
  if (nesting_ > kDataNesting) stop("brackets are nested too deep");
  if (accept_op("(")) {
    Target inner = target(false, false);
    expect_op(")");
    return inner;
  }
  Target out;
  out.at = peek().at;
  if (peek().token != Token::name) {
    stop("cannot assign to this",
         "assign to a name, a tuple of names, or an attribute of a namespace");
  }
  out.name = take().text;
  if (with_namespace && accept_op(".")) {
    out.kind = Target::Kind::attribute;
    out.attribute = expect_name();
    return out;
  }
  check_name(out.name, out.at);
  return out;
}

void Parser::check_name(const std::string& name, std::uint32_t at) const {
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (std::count(std::begin(kConstants), std::end(kConstants), name)) {
    stop_at(at, "cannot assign to '" + name + "'");
  }
  if (name == "loop" && loop_targets_ > 0) {
    stop_at(at, "cannot assign to 'loop' inside a loop", "use another name");
  }
}

// Read a macro, or the block that a call hands to one.
void Parser::parameters(Stmt& out) {
  expect_op("(");
  while (!at_op(")")) {
    if (!out.parameters.empty()) expect_op(",");
    Parameter parameter;
    const std::uint32_t at = peek().at;
    parameter.name = expect_name();
    check_name(parameter.name, at);
    for (const Parameter& other : out.parameters) {
      if (other.name == parameter.name) stop_at(at, "the parameter is named twice");
    }
    if (accept_op("=")) {
      parameter.fallback = expression();
    } else if (!out.parameters.empty() && out.parameters.back().fallback) {
      stop_at(at, "a parameter without a default follows one with a default");
    }
    out.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

// Read the body of a macro and see what it uses.
Block Parser::macro_body(Stmt& out, std::string_view end) {
  accept_op(":");
  expect_block_end();
  const auto before = uses_;
  const int loops = std::exchange(loops_, 0);  // break cannot leave a macro
  const bool lazy = std::exchange(lazy_names_, false);
  Block body = block({end});
  take();
  loops_ = loops;
  lazy_names_ = lazy;
  const auto declared = [&](std::string_view name) {
    return std::any_of(out.parameters.begin(), out.parameters.end(),
                       [&](const Parameter& parameter) { return parameter.name == name; });
  };
  out.uses_varargs = uses_[1] > before[1] && !declared("varargs");
  out.uses_kwargs = uses_[2] > before[2] && !declared("kwargs");
  out.uses_caller = uses_[3] > before[3];
  return body;
}

void Parser::macro_statement(Stmt& out) {
  out.kind = StmtKind::macro;
  const std::uint32_t at = peek().at;
  out.text = expect_name();
  check_name(out.text, at);
  parameters(out);
  out.body = macro_body(out, "endmacro");
  for (const Parameter& parameter : out.parameters) {
    if (parameter.name == "caller" && out.uses_caller && !parameter.fallback) {
      stop_at(at, "the parameter 'caller' must have a default or be left out");
    }
  }
}

void Parser::call_statement(Stmt& out) {
  out.kind = StmtKind::call_block;
  if (at_op("(")) parameters(out);
  const std::uint32_t at = peek().at;
  out.expr = expression();
  if (out.expr->kind != ExprKind::call) stop_at(at, "expected a call of a macro");
  out.body = macro_body(out, "endcall");
}

}  // namespace rose::text::jinja
