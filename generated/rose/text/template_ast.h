// The tree of a template.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rose/text/template_value.h"

namespace rose::text::jinja {

struct Native;  // a filter, test, method or function written in C++
struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

// Keep every expression in one node type.
enum class ExprKind : std::uint8_t {
  constant,     // value
  name,         // name
  tuple,        // parts
  list,         // parts
  dict,         // parts: key, value, key, value, ...
  attribute,    // parts[0] . name
  item,         // parts[0] [ parts[1] ]
  slice,        // parts[0] : parts[1] : parts[2], each may be null
  call,         // parts[0] ( arguments )
  filter,       // parts[0] | name ( arguments ); parts[0] is null in {% filter %}
  test,         // parts[0] is name ( arguments )
  unary,        // name: "not", "-", "+"
  binary,       // parts[0] name parts[1]: arithmetic
  both,         // and
  either,       // or
  compare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
  concat,       // parts joined by ~
  conditional,  // parts[1] if parts[0] else parts[2], which may be null
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star;         ///< *args
  ExprPtr double_star;  ///< **kwargs
};

struct Expr {
  ExprKind kind = ExprKind::constant;
  std::uint32_t at = 0;  ///< byte offset in the template
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> parts;
  std::vector<std::string> operators;
  CallArguments arguments;
  const Native* native = nullptr;  ///< of a filter or test
};

// Keep every statement in one node type, too.
struct Target {
  enum class Kind : std::uint8_t { name, attribute, tuple } kind = Kind::name;
  std::uint32_t at = 0;
  std::string name;
  std::string attribute;      ///< of `ns.attribute`
  std::vector<Target> items;  ///< of a tuple
};

struct Stmt;
using Block = std::vector<Stmt>;

struct Parameter {
  std::string name;
  ExprPtr fallback;  ///< null: no default
};

enum class StmtKind : std::uint8_t {
  data,          // text
  print,         // expr
  branch,        // branches in order, then otherwise
  loop,          // for target in expr if filter: body, otherwise
  set,           // target = expr
  set_block,     // target = body, through `expr` (a filter) if there is one
  macro,         // text ( parameters ): body
  call_block,    // expr is the call, parameters and body are its caller
  filter_block,  // body through expr
  with,          // targets and values in `bindings`, then body
  scope,         // {% generation %}: body, in a scope of its own
  break_loop,
  continue_loop,
};

struct Stmt {
  StmtKind kind = StmtKind::data;
  std::uint32_t at = 0;
  std::string text;
  ExprPtr expr;
  ExprPtr filter;
  Target target;
  Block body, otherwise;
  std::vector<std::pair<ExprPtr, Block>> branches;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  std::vector<Parameter> parameters;
  bool recursive = false;
  bool uses_loop = false;  ///< the body of a loop reads `loop`
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;  ///< of a macro
};

Block parse(std::string_view source);  ///< of a normalized source; throws LocatedFailure

}  // namespace rose::text::jinja
