// Parse expressions, down to their operands.

#include "rose/text/template_parser.h"

#include <algorithm>
#include <utility>

namespace rose::text::jinja {

// Name tokens as a reader sees them.
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
bool Parser::accept_op(std::string_view op) {
  return at_op(op) && (take(), true);
}
bool Parser::accept_name(std::string_view name) {
  return at_name(name) && (take(), true);
}
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
    stop_at(node.at,
            "this expression is nested more than " + std::to_string(kDataNesting) + " deep",
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

// Read a chain of comparisons.
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

// Read sums, joined texts, products and powers.
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

}  // namespace rose::text::jinja
