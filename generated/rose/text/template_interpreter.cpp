// Evaluate expressions.

#include "rose/text/template_interpreter.h"

#include <algorithm>

#include "rose/text/template_lexer.h"
#include "rose/text/template_parser.h"

namespace rose::text::jinja {

// Look a name up from the inside out.
void Scope::set(std::string_view name, Value value) {
  for (auto& [other, old] : variables) {
    if (other == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->around.get()) {
    for (const auto& [other, value] : scope->variables) {
      if (other == name) return &value;
    }
  }
  return nullptr;
}

// Run a program and name the place of a failure.
std::string Interpreter::render(const Block& program) {
  Writer out(meter());
  const auto top = std::make_shared<Scope>(nullptr);
  try {
    run(program, top, out);
  } catch (Failure& failure) {
    throw LocatedFailure{std::move(failure), at_};
  }
  return out.take();
}

Interpreter::~Interpreter() {
  for (const auto& space : spaces_) space->attributes = Dict();
  for (const auto& scope : closures_) scope->variables.clear();
}

// Evaluate an expression by its kind.
Value Interpreter::eval(const Expr& expr, const ScopePtr& scope) {
  const Nest nest(depth_);
  meter().step();
  at_ = expr.at;
  if (depth_ > meter().limits().depth) {
    throw Failure{core::Code::resource_exhausted, "the template calls itself too deeply",
                  "does a macro or a recursive loop never end?"};
  }
  switch (expr.kind) {
    case ExprKind::constant: return expr.value;
    case ExprKind::name: return eval_name(expr, scope);
    case ExprKind::tuple:
    case ExprKind::list:
    case ExprKind::dict: return eval_collection(expr, scope);
    case ExprKind::attribute:
    case ExprKind::item: return eval_access(expr, scope);
    case ExprKind::slice: return Value();  // only inside of an item, which reads it itself
    case ExprKind::call: return eval_call(expr, scope);
    case ExprKind::filter:
    case ExprKind::test: return eval_native(expr, scope);
    case ExprKind::compare: return eval_comparison(expr, scope);
    case ExprKind::concat: return eval_concat(expr, scope);
    case ExprKind::both: {
      Value left = eval(*expr.parts[0], scope);
      return truth(left) ? eval(*expr.parts[1], scope) : left;
    }
    case ExprKind::either: {
      Value left = eval(*expr.parts[0], scope);
      return truth(left) ? left : eval(*expr.parts[1], scope);
    }
    case ExprKind::conditional:
      if (truth(eval(*expr.parts[0], scope))) return eval(*expr.parts[1], scope);
      if (expr.parts[2]) return eval(*expr.parts[2], scope);
      return Value::undefined("the inline if is false and has no else");
    default: return eval_operator(expr, scope);
  }
}

// Read a variable, the context, or a global function.
Value Interpreter::eval_name(const Expr& expr, const ScopePtr& scope) {
  if (const Value* local = scope->find(expr.name)) return *local;
  if (const Value* given = context_->member(expr.name)) return *given;
  if (const Native* native = find_global(expr.name)) {
    return bound_method(*native, Value());
  }
  return Value::undefined("'" + expr.name + "' is undefined");
}

// Make a tuple, a list or a dictionary.
Value Interpreter::eval_collection(const Expr& expr, const ScopePtr& scope) {
  if (expr.kind == ExprKind::dict) {
    Dict dict;
    for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
      const Value key = eval(*expr.parts[i], scope);
      Value value = eval(*expr.parts[i + 1], scope);
      at_ = expr.at;
      dict.set(key, std::move(value));
    }
    return Value::dict(std::move(dict));
  }
  std::vector<Value> items;
  items.reserve(expr.parts.size());
  for (const auto& part : expr.parts) items.push_back(eval(*part, scope));
  at_ = expr.at;
  return expr.kind == ExprKind::list ? Value::list(std::move(items))
                                     : Value::tuple(std::move(items));
}

Value Interpreter::eval_access(const Expr& expr, const ScopePtr& scope) {
  const Value of = eval(*expr.parts[0], scope);
  if (expr.kind == ExprKind::attribute) {
    at_ = expr.at;
    return attribute(of, expr.name);
  }
  const Expr& key = *expr.parts[1];
  if (key.kind != ExprKind::slice) {
    const Value index = eval(key, scope);
    at_ = expr.at;
    return item(of, index, meter());
  }
  std::array<Value, 3> bounds;
  for (std::size_t i = 0; i < 3; ++i) {
    if (key.parts[i]) bounds[i] = eval(*key.parts[i], scope);
  }
  at_ = expr.at;
  return slice(of, bounds[0], bounds[1], bounds[2], meter());
}

// Apply arithmetic, a sign, or not.
Value Interpreter::eval_operator(const Expr& expr, const ScopePtr& scope) {
  const Value left = eval(*expr.parts[0], scope);
  if (expr.kind == ExprKind::unary) {
    if (expr.name == "not") return Value(!truth(left));
    at_ = expr.at;
    return negate(left, expr.name == "-");
  }
  const Value right = eval(*expr.parts[1], scope);
  at_ = expr.at;
  return arithmetic(expr.name, left, right, meter());
}

Value Interpreter::eval_comparison(const Expr& expr, const ScopePtr& scope) {
  Value left = eval(*expr.parts[0], scope);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = eval(*expr.parts[i + 1], scope);
    at_ = expr.at;
    if (!compare(expr.operators[i], left, right, meter())) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::eval_concat(const Expr& expr, const ScopePtr& scope) {
  std::vector<Value> parts;
  parts.reserve(expr.parts.size());
  for (const auto& part : expr.parts) parts.push_back(eval(*part, scope));
  at_ = expr.at;
  Writer out(meter());
  for (const Value& part : parts) {
    if (part.is(Kind::string)) {
      out << part.text();
    } else {
      out << str(part, meter());
    }
  }
  return Value(out.take());
}

// Evaluate arguments, then call.
Arguments Interpreter::eval_arguments(const CallArguments& from, const ScopePtr& scope) {
  Arguments out;
  for (const auto& part : from.positional) out.positional.push_back(eval(*part, scope));
  for (const auto& [name, part] : from.keyword) out.keyword.emplace_back(name, eval(*part, scope));
  if (from.star) {
    for (Value& value : collect(eval(*from.star, scope), meter())) {
      out.positional.push_back(std::move(value));
    }
  }
  if (from.double_star) {
    const Value more = eval(*from.double_star, scope);
    if (!more.is(Kind::dict)) fail("what follows ** must be a mapping");
    for (const auto& [key, value] : more.as<Dict>().entries) {
      if (!key.is(Kind::string)) fail("keywords must be strings");
      for (const auto& [name, other] : out.keyword) {
        if (name == key.text()) fail("the argument '" + name + "' is given twice");
      }
      out.keyword.emplace_back(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::eval_call(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  const Value callee = eval(*expr.parts[0], scope);
  Arguments arguments = eval_arguments(expr.arguments, scope);
  if (caller != nullptr) arguments.keyword.emplace_back("caller", *caller);
  at_ = expr.at;
  return call(callee, std::move(arguments));
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  switch (callee.kind()) {
    case Kind::undefined: fail(callee.text());
    case Kind::function: {
      const Function& function = callee.as<Function>();
      return call_native(*this, *function.native, function.self, arguments);
    }
    case Kind::macro: return call_macro(callee.as<Macro>(), arguments);
    case Kind::loop: return call_loop(callee.as<Loop>(), arguments);
    default: fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

// Apply a filter or a test.
Value Interpreter::eval_native(const Expr& expr, const ScopePtr& scope, const Value* filtered) {
  const Value self = filtered != nullptr ? *filtered : eval(*expr.parts[0], scope);
  Arguments arguments = eval_arguments(expr.arguments, scope);
  at_ = expr.at;
  if (expr.native == nullptr) {
    fail("there is no " + std::string(expr.kind == ExprKind::filter ? "filter" : "test") +
         " named '" + expr.name + "'");
  }
  return call_native(*this, *expr.native, self, arguments);
}

}  // namespace rose::text::jinja
