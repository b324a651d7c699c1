// Parse a template.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rose/text/template_ast.h"
#include "rose/text/template_lexer.h"

namespace rose::text::jinja {

// Count a level while it is open.
struct Nest {
  explicit Nest(int& level) : level_(level) { ++level_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;
  ~Nest() { --level_; }
  int& level_;
};

std::string shown(const Lexeme& token);
Expr node(ExprKind kind, std::uint32_t at);

// Keep the position in the tokens and what surrounds it.
class Parser {
 public:
  explicit Parser(std::vector<Lexeme> tokens) : tokens_(std::move(tokens)) {}
  Block run();

 private:
  // The stream of tokens.
  const Lexeme& peek(std::size_t ahead = 0) const;
  const Lexeme& take();
  bool at_op(std::string_view op) const;
  bool at_name(std::string_view name, std::size_t ahead = 0) const;
  bool accept_op(std::string_view op);
  bool accept_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name();
  void expect_block_end();
  [[noreturn]] void stop(std::string message, std::string hint = {}) const;
  [[noreturn]] void stop_at(std::uint32_t at, std::string message, std::string hint = {}) const;

  // Expressions, loosest first.
  ExprPtr tuple_or_expression(bool conditional, bool stop_at_recursive = false,
                              bool parentheses = false);
  ExprPtr expression(bool conditional = true);
  ExprPtr conditional();
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr of);
  ExprPtr subscript(ExprPtr of);
  ExprPtr subscripted();
  ExprPtr call(ExprPtr of);
  ExprPtr filters(ExprPtr of);
  ExprPtr filter(ExprPtr of);
  ExprPtr test(ExprPtr of);
  CallArguments arguments();
  ExprPtr finish(Expr node);

  // Statements.
  Block block(std::vector<std::string_view> ends);
  Stmt statement();
  void if_statement(Stmt& out);
  void for_statement(Stmt& out);
  void set_statement(Stmt& out);
  void macro_statement(Stmt& out);
  void call_statement(Stmt& out);
  void with_statement(Stmt& out);
  void parameters(Stmt& out);
  Block macro_body(Stmt& out, std::string_view end);
  Target target(bool with_namespace, bool stop_at_in);
  Target single_target(bool with_namespace);
  void check_name(const std::string& name, std::uint32_t at) const;

  std::vector<Lexeme> tokens_;
  std::size_t next_ = 0;
  int nesting_ = 0;
  int loops_ = 0;            // loops around the statement, for break and continue
  int loop_targets_ = 0;     // loops around, through macros too: `loop` is theirs
  bool lazy_names_ = false;  // inside an if: an unknown filter may never run
  std::vector<std::pair<std::uint32_t, std::string>> unknown_;  // filters and tests, elsewhere
  std::array<int, 4> uses_{};  // of loop, varargs, kwargs, caller, so far
};

}  // namespace rose::text::jinja
