// Parse operands and what follows them.

#include <utility>

#include "rose/text/template_natives.h"
#include "rose/text/template_parser.h"

namespace rose::text::jinja {

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

// Read a name, a literal or something in brackets.
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
