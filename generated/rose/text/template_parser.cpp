// Keep template_parser.cpp.

#include "rose/text/template_parser.h"

#include <algorithm>
#include <utility>

#include "rose/text/template_natives.h"

namespace rose::text::jinja {
namespace {

std::string shown(const Lexeme& token) {
  switch (token.token) {
    case Token::end: return "the end of the template";
    case Token::data: return "text";
    case Token::variable_begin: return "'{{'";
    case Token::variable_end: return "'}}'";
    case Token::block_begin: return "'{%'";
    case Token::block_end: return "'%}'";
    case Token::string: return "a string";
    default: return "'" + token.text + "'";
  }
}

Expr node(ExprKind kind, std::uint32_t at) {
  Expr expr;
  expr.kind = kind;
  expr.at = at;
  return expr;
}

}  // namespace

// Look at tokens, take them, insist on them.
const Lexeme& Parser::peek(std::size_t ahead) const {
  return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
}
const Lexeme& Parser::take() {
  const Lexeme& token = peek();
  if (token.token != Token::end) ++next_;
  return token;
}
bool Parser::at_op(std::string_view op) const {
  return peek().token == Token::op && peek().text == op;
}
bool Parser::at_name(std::string_view name, std::size_t ahead) const {
  return peek(ahead).token == Token::name && peek(ahead).text == name;
}
bool Parser::accept_op(std::string_view op) { return at_op(op) && (take(), true); }
bool Parser::accept_name(std::string_view name) { return at_name(name) && (take(), true); }
void Parser::expect_op(std::string_view op) {
  if (!accept_op(op)) stop("expected '" + std::string(op) + "', found " + shown(peek()));
}
std::string Parser::expect_name() {
  if (peek().token != Token::name) stop("expected a name, found " + shown(peek()));
  return take().text;
}
void Parser::expect_block_end() {
  if (peek().token != Token::block_end) stop("expected '%}', found " + shown(peek()));
  take();
}
void Parser::stop(std::string message, std::string hint) const {
  stop_at(peek().at, std::move(message), std::move(hint));
}
void Parser::stop_at(std::uint32_t at, std::string message, std::string hint) const {
  throw LocatedFailure{{core::Code::invalid_argument, std::move(message), std::move(hint)}, at};
}

// Seal a node, and refuse trees too deep to walk.
ExprPtr Parser::finish(Expr node) {
  int deepest = 0;
  const auto see = [&](const ExprPtr& part) {
    if (part) deepest = std::max(deepest, part->depth);
  };
  for (const auto& part : node.parts) see(part);
  for (const auto& part : node.arguments.positional) see(part);
  for (const auto& [name, part] : node.arguments.keyword) see(part);
  see(node.arguments.star);
  see(node.arguments.double_star);
  node.depth = deepest + 1;
  if (node.depth > kDataNesting) {
    stop_at(node.at, "this expression is nested more than " + std::to_string(kDataNesting) + " deep",
            "set parts of it to variables first");
  }
  return std::make_unique<const Expr>(std::move(node));
}

// Read one expression, or several with commas.
ExprPtr Parser::tuple_or_expression(bool conditional, bool stop_at_recursive, bool parentheses) {
  Expr tuple = node(ExprKind::tuple, peek().at);
  bool comma = false;
  const auto ends = [&] {
    const Token t = peek().token;
    return t == Token::variable_end || t == Token::block_end || at_op(")") ||
           (stop_at_recursive && at_name("recursive"));
  };
  while (!ends()) {
    tuple.parts.push_back(expression(conditional));
    if (!accept_op(",")) break;
    comma = true;
  }
  if (!comma && !tuple.parts.empty()) return std::move(tuple.parts[0]);
  if (!comma && !parentheses) stop("expected an expression, found " + shown(peek()));
  return finish(std::move(tuple));
}

ExprPtr Parser::expression(bool with_condition) {
  const Nest nest(nesting_);
  if (nesting_ > kDataNesting) stop("brackets are nested too deep");
  return with_condition ? conditional() : either();
}

// Read a choice, whose else may be missing.
ExprPtr Parser::conditional() {
  const std::size_t known_unknowns = unknown_.size();
  ExprPtr first = either();
  while (at_name("if")) {
    Expr choice = node(ExprKind::conditional, take().at);
    choice.parts.push_back(either());
    choice.parts.push_back(std::move(first));
    choice.parts.push_back(accept_name("else") ? expression() : nullptr);
    unknown_.resize(known_unknowns);  // these may never run: they fail when they do
    first = finish(std::move(choice));
  }
  return first;
}

// Climb through the levels of precedence.
ExprPtr Parser::either() {
  ExprPtr left = both();
  while (at_name("or")) {
    Expr e = node(ExprKind::either, take().at);
    e.parts.push_back(std::move(left));
    e.parts.push_back(both());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::both() {
  ExprPtr left = negation();
  while (at_name("and")) {
    Expr e = node(ExprKind::both, take().at);
    e.parts.push_back(std::move(left));
    e.parts.push_back(negation());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::negation() {
  if (!at_name("not")) return comparison();
  const Nest nest(nesting_);
  if (nesting_ > kDataNesting) stop("too many 'not' in a row");
  Expr e = node(ExprKind::unary, take().at);
  e.name = "not";
  e.parts.push_back(negation());
  return finish(std::move(e));
}

ExprPtr Parser::comparison() {
  static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  Expr chain = node(ExprKind::compare, peek().at);
  chain.parts.push_back(sum());
  while (true) {
    std::string op;
    if (peek().token == Token::op && std::count(std::begin(kOps), std::end(kOps), peek().text)) {
      if (chain.operators.empty()) chain.at = peek().at;
      op = take().text;
    } else if (accept_name("in")) {
      op = "in";
    } else if (at_name("not") && at_name("in", 1)) {
      take(), take();
      op = "not in";
    } else {
      break;
    }
    chain.operators.push_back(std::move(op));
    chain.parts.push_back(sum());
  }
  return chain.operators.empty() ? std::move(chain.parts[0]) : finish(std::move(chain));
}

ExprPtr Parser::sum() {
  ExprPtr left = concatenation();
  while (at_op("+") || at_op("-")) {
    Expr e = node(ExprKind::binary, peek().at);
    e.name = take().text;
    e.parts.push_back(std::move(left));
    e.parts.push_back(concatenation());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::concatenation() {
  Expr e = node(ExprKind::concat, peek().at);
  e.parts.push_back(product());
  while (accept_op("~")) e.parts.push_back(product());
  return e.parts.size() == 1 ? std::move(e.parts[0]) : finish(std::move(e));
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  while (at_op("*") || at_op("/") || at_op("//") || at_op("%")) {
    Expr e = node(ExprKind::binary, peek().at);
    e.name = take().text;
    e.parts.push_back(std::move(left));
    e.parts.push_back(power());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::power() {
  ExprPtr left = unary();
  while (at_op("**")) {
    Expr e = node(ExprKind::binary, peek().at);
    e.name = take().text;
    e.parts.push_back(std::move(left));
    e.parts.push_back(unary());
    left = finish(std::move(e));
  }
  return left;
}

// Read a sign, a primary, and what follows it.
ExprPtr Parser::unary(bool with_filters) {
  const Nest nest(nesting_);
  if (nesting_ > kDataNesting) stop("too many signs in a row");
  ExprPtr expr;
  if (at_op("-") || at_op("+")) {
    Expr e = node(ExprKind::unary, peek().at);
    e.name = take().text;
    e.parts.push_back(unary(false));
    expr = finish(std::move(e));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return with_filters ? filters(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::primary() {
  const Lexeme& token = take();
  Expr e = node(ExprKind::constant, token.at);
  if (token.token == Token::name) {
    const std::string& name = token.text;
    if (name == "true" || name == "True") {
      e.value = Value(true);
    } else if (name == "false" || name == "False") {
      e.value = Value(false);
    } else if (name != "none" && name != "None") {
      static constexpr std::string_view kSpecial[] = {"loop", "varargs", "kwargs", "caller"};
      for (std::size_t i = 0; i < 4; ++i) uses_[i] += name == kSpecial[i];
      e.kind = ExprKind::name;
      e.name = name;
    }
  } else if (token.token == Token::string) {
    std::string text = token.text;
    while (peek().token == Token::string) text += take().text;
    e.value = Value(std::move(text));
  } else if (token.token == Token::integer || token.token == Token::real) {
    e.value = token.number;
  } else if (token.token == Token::op && token.text == "(") {
    ExprPtr inner = tuple_or_expression(true, false, true);
    expect_op(")");
    return inner;
  } else if (token.token == Token::op && token.text == "[") {
    e.kind = ExprKind::list;
    while (!at_op("]")) {
      e.parts.push_back(expression());
      if (!accept_op(",")) break;
    }
    expect_op("]");
  } else if (token.token == Token::op && token.text == "{") {
    e.kind = ExprKind::dict;
    while (!at_op("}")) {
      e.parts.push_back(expression());
      expect_op(":");
      e.parts.push_back(expression());
      if (!accept_op(",")) break;
    }
    expect_op("}");
  } else {
    stop_at(token.at, "expected an expression, found " + shown(token));
  }
  return finish(std::move(e));
}

// Read attributes, items and calls after a primary.
ExprPtr Parser::postfix(ExprPtr of) {
  while (true) {
    if (at_op(".") || at_op("[")) {
      of = subscript(std::move(of));
    } else if (at_op("(")) {
      of = call(std::move(of));
    } else {
      return of;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr of) {
  const bool dot = at_op(".");
  Expr e = node(ExprKind::item, take().at);
  e.parts.push_back(std::move(of));
  if (dot && peek().token == Token::name) {
    e.kind = ExprKind::attribute;
    e.name = take().text;
  } else if (dot) {
    if (peek().token != Token::integer) stop("expected a name or number after '.'");
    Expr index = node(ExprKind::constant, peek().at);
    index.value = take().number;
    e.parts.push_back(finish(std::move(index)));
  } else {
    Expr tuple = node(ExprKind::tuple, peek().at);
    while (!at_op("]")) {
      if (!tuple.parts.empty()) expect_op(",");
      tuple.parts.push_back(subscripted());
    }
    expect_op("]");
    e.parts.push_back(tuple.parts.size() == 1 ? std::move(tuple.parts[0])
                                              : finish(std::move(tuple)));
  }
  return finish(std::move(e));
}

ExprPtr Parser::subscripted() {
  Expr slice = node(ExprKind::slice, peek().at);
  slice.parts.resize(3);
  if (!at_op(":")) {
    slice.parts[0] = expression();
    if (!at_op(":")) return std::move(slice.parts[0]);
  }
  take();
  const auto ends = [&] { return at_op(":") || at_op("]") || at_op(","); };
  if (!ends()) slice.parts[1] = expression();
  if (accept_op(":") && !at_op("]") && !at_op(",")) slice.parts[2] = expression();
  return finish(std::move(slice));
}

// Read the arguments of a call.
ExprPtr Parser::call(ExprPtr of) {
  Expr e = node(ExprKind::call, peek().at);
  e.parts.push_back(std::move(of));
  e.arguments = arguments();
  return finish(std::move(e));
}

CallArguments Parser::arguments() {
  CallArguments out;
  const std::uint32_t start = peek().at;
  const auto ensure = [&](bool in_order) {
    if (!in_order) stop_at(start, "arguments are out of order", "positional, keyword, *, then **");
  };
  expect_op("(");
  while (!at_op(")")) {
    if (accept_op("*")) {
      ensure(!out.star && !out.double_star);
      out.star = expression();
    } else if (accept_op("**")) {
      ensure(!out.double_star);
      out.double_star = expression();
    } else if (peek().token == Token::name && peek(1).token == Token::op && peek(1).text == "=") {
      ensure(!out.double_star);
      std::string name = take().text;
      take();
      for (const auto& [other, value] : out.keyword) {
        if (other == name) stop_at(start, "the argument '" + name + "' is given twice");
      }
      out.keyword.emplace_back(std::move(name), expression());
    } else {
      ensure(!out.star && !out.double_star && out.keyword.empty());
      out.positional.push_back(expression());
    }
    if (!accept_op(",")) break;
  }
  expect_op(")");
  return out;
}

// Read filters and tests.
ExprPtr Parser::filters(ExprPtr of) {
  while (true) {
    if (accept_op("|")) {
      of = filter(std::move(of));
    } else if (at_name("is")) {
      of = test(std::move(of));
    } else if (at_op("(")) {
      of = call(std::move(of));
    } else {
      return of;
    }
  }
}

ExprPtr Parser::filter(ExprPtr of) {
  Expr e = node(ExprKind::filter, peek().at);
  e.name = expect_name();
  while (accept_op(".")) e.name += "." + expect_name();
  e.native = find_filter(e.name);
  if (e.native == nullptr && !lazy_names_) unknown_.emplace_back(e.at, "filter '" + e.name + "'");
  if (at_op("(")) e.arguments = arguments();
  e.parts.push_back(std::move(of));
  return finish(std::move(e));
}

ExprPtr Parser::test(ExprPtr of) {
  Expr e = node(ExprKind::test, take().at);
  const bool negated = accept_name("not");
  e.name = expect_name();
  while (accept_op(".")) e.name += "." + expect_name();
  e.native = find_test(e.name);
  if (e.native == nullptr && !lazy_names_) unknown_.emplace_back(e.at, "test '" + e.name + "'");
  const Token t = peek().token;
  if (at_op("(")) {
    e.arguments = arguments();
  } else if (t == Token::string || t == Token::integer || t == Token::real || at_op("[") ||
             at_op("{") ||
             (t == Token::name && !at_name("else") && !at_name("or") && !at_name("and"))) {
    if (at_name("is")) stop("tests cannot be chained with 'is'");
    e.arguments.positional.push_back(postfix(primary()));
  }
  e.parts.push_back(std::move(of));
  ExprPtr result = finish(std::move(e));
  if (!negated) return result;
  Expr opposite = node(ExprKind::unary, result->at);
  opposite.name = "not";
  opposite.parts.push_back(std::move(result));
  return finish(std::move(opposite));
}

}  // namespace rose::text::jinja
