// Execute statements.

#include <algorithm>

#include "rose/text/template_interpreter.h"
#include "rose/text/template_parser.h"

namespace rose::text::jinja {

// Run statements one after another.
Interpreter::Flow Interpreter::run(const Block& block, const ScopePtr& scope, Writer& out) {
  for (const Stmt& stmt : block) {
    if (const Flow flow = run(stmt, scope, out); flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt, const ScopePtr& scope, Writer& out) {
  const Nest nest(depth_);
  meter().step();
  at_ = stmt.at;
  switch (stmt.kind) {
    case StmtKind::data: out << stmt.text; return Flow::on;
    case StmtKind::print: {
      const Value value = eval(*stmt.expr, scope);
      if (value.is(Kind::string)) {
        out << value.text();
      } else if (!value.is(Kind::undefined)) {
        out << str(value, meter());
      }
      return Flow::on;
    }
    case StmtKind::branch: return run_branch(stmt, scope, out);
    case StmtKind::loop: return run_loop(stmt, scope, out, eval(*stmt.expr, scope), 0);
    case StmtKind::set: {
      check_namespaces(stmt.target, scope);
      assign(stmt.target, eval(*stmt.expr, scope), *scope, scope);
      return Flow::on;
    }
    case StmtKind::set_block: return run_set_block(stmt, scope);
    case StmtKind::macro: scope->set(stmt.text, make_macro(stmt, scope)); return Flow::on;
    case StmtKind::call_block: {
      const Value caller = make_macro(stmt, scope);
      out << str(eval_call(*stmt.expr, scope, &caller), meter());
      return Flow::on;
    }
    case StmtKind::filter_block: return run_filter_block(stmt, scope, out);
    case StmtKind::with: return run_with(stmt, scope, out);
    case StmtKind::scope: return run(stmt.body, std::make_shared<Scope>(scope), out);
    case StmtKind::break_loop: return Flow::broken;
    case StmtKind::continue_loop: return Flow::continued;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run_branch(const Stmt& stmt, const ScopePtr& scope, Writer& out) {
  for (const auto& [test, body] : stmt.branches) {
    if (truth(eval(*test, scope))) return run(body, scope, out);
  }
  return run(stmt.otherwise, scope, out);
}

// Run a loop; each turn has a scope of its own.
Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, const ScopePtr& scope, Writer& out,
                                        const Value& over, std::int64_t depth0) {
  const auto cursor = std::make_shared<Cursor>(over, meter());
  const auto loop = std::make_shared<Loop>();
  loop->depth = kDataNesting;  // a container cannot hold it: its values come and go
  loop->depth0 = depth0;
  loop->statement = stmt.recursive ? &stmt : nullptr;
  loop->scope = scope;
  if (!stmt.filter) loop->known_length = length(over);
  loop->source = [this, cursor, &stmt, scope]() -> std::optional<Value> {
    while (auto item = cursor->next()) {
      if (!stmt.filter) return item;
      const auto inner = std::make_shared<Scope>(scope);
      assign(stmt.target, *item, *inner, inner);
      if (truth(eval(*stmt.filter, inner))) return item;
    }
    return std::nullopt;
  };
  bool completed = false;  // a turn reached its end; `continue` and `break` do not count
  Flow flow = Flow::on;
  while (flow != Flow::broken && loop->advance()) {
    const auto inner = std::make_shared<Scope>(scope);
    if (stmt.uses_loop) inner->set("loop", Value::object(Kind::loop, loop));
    at_ = stmt.at;
    assign(stmt.target, loop->current, *inner, inner);
    flow = run(stmt.body, inner, out);
    completed = completed || flow == Flow::on;
  }
  loop->source = [] { return std::nullopt; };
  loop->scope = nullptr;
  loop->statement = nullptr;
  if (completed || stmt.otherwise.empty()) return Flow::on;
  return run(stmt.otherwise, std::make_shared<Scope>(scope), out);
}

// Assign to names, tuples of names and attributes of namespaces.
void Interpreter::check_namespaces(const Target& target, const ScopePtr& scope) {
  for (const Target& item : target.items) check_namespaces(item, scope);
  if (target.kind != Target::Kind::attribute) return;
  const Value* space = scope->find(target.name);
  if (space == nullptr) space = context_->member(target.name);
  if (space == nullptr || !space->is(Kind::space)) {
    at_ = target.at;
    fail("cannot set an attribute of '" + target.name + "', which is not a namespace",
         "make one with {% set " + target.name + " = namespace() %}");
  }
}

void Interpreter::assign(const Target& target, Value value, Scope& scope, const ScopePtr& lookup) {
  switch (target.kind) {
    case Target::Kind::name: scope.set(target.name, std::move(value)); return;
    case Target::Kind::attribute: {
      at_ = target.at;
      if (target.attribute.starts_with('_')) fail("names that begin with '_' are reserved");
      const Value* space = lookup->find(target.name);
      if (space == nullptr || !space->is(Kind::space))
        fail("'" + target.name + "' is no namespace");
      space->as<Space>().attributes.set(Value(target.attribute), std::move(value));
      return;
    }
    case Target::Kind::tuple: {
      at_ = target.at;
      const std::vector<Value> items = collect(value, meter());
      if (items.size() != target.items.size()) {
        fail("cannot unpack " + std::to_string(items.size()) + " values into " +
             std::to_string(target.items.size()) + " names");
      }
      for (std::size_t i = 0; i < items.size(); ++i) {
        assign(target.items[i], items[i], scope, lookup);
      }
    }
  }
}

Value Interpreter::make_namespace(Dict attributes) {
  meter().work(sizeof(Space));
  auto space = std::make_shared<Space>();
  space->attributes = std::move(attributes);
  spaces_.push_back(space);
  return Value::object(Kind::space, std::move(space));
}

// Render a block into a value, or through a filter.
Interpreter::Flow Interpreter::run_set_block(const Stmt& stmt, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  Writer text(meter());
  if (const Flow flow = run(stmt.body, inner, text); flow != Flow::on) return flow;
  Value value(text.take());
  check_namespaces(stmt.target, scope);
  if (stmt.filter) value = apply(*stmt.filter, inner, value);
  assign(stmt.target, std::move(value), *scope, scope);
  return Flow::on;
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& stmt, const ScopePtr& scope,
                                                Writer& out) {
  const auto inner = std::make_shared<Scope>(scope);
  Writer text(meter());
  if (const Flow flow = run(stmt.body, inner, text); flow != Flow::on) return flow;
  out << str(apply(*stmt.expr, inner, Value(text.take())), meter());
  return Flow::on;
}

/// Filters chained after {% filter %} or {% set x | ... %}: the innermost has no operand.
Value Interpreter::apply(const Expr& filter, const ScopePtr& scope, const Value& value) {
  if (!filter.parts[0]) return eval_native(filter, scope, &value);
  const Value inner = apply(*filter.parts[0], scope, value);
  return eval_native(filter, scope, &inner);
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt, const ScopePtr& scope, Writer& out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (const auto& [target, expr] : stmt.bindings) {
    assign(target, eval(*expr, scope), *inner, inner);
  }
  return run(stmt.body, inner, out);
}

// Call a macro in a scope inside the one it was defined in.
Value Interpreter::make_macro(const Stmt& stmt, const ScopePtr& scope) {
  auto macro = std::make_shared<Macro>();
  macro->definition = &stmt;
  macro->scope = scope;
  if (closures_.empty() || closures_.back() != scope) closures_.push_back(scope);
  meter().work(sizeof(Macro));
  return Value::object(Kind::macro, std::move(macro));
}

// Bind arguments to parameters and render the body.
Value Interpreter::call_macro(const Macro& macro, Arguments& arguments) {
  const Stmt& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  const auto take_keyword = [&](std::string_view name) -> std::optional<Value> {
    for (auto it = arguments.keyword.begin(); it != arguments.keyword.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      arguments.keyword.erase(it);
      return value;
    }
    return std::nullopt;
  };
  const auto scope = std::make_shared<Scope>(macro.scope);
  std::vector<const Parameter*> missing;
  bool has_caller = false;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_keyword(parameters[i].name);
    }
    has_caller = has_caller || parameters[i].name == "caller";
    if (!value) missing.push_back(&parameters[i]);
    scope->set(parameters[i].name,
               value ? std::move(*value)
                     : Value::undefined("parameter '" + parameters[i].name + "' was not provided"));
  }
  if (definition.uses_caller && !has_caller) {
    scope->set("caller", take_keyword("caller").value_or(Value::undefined("no caller defined")));
  }
  bind_rest(definition, arguments, *scope);
  for (const Parameter* parameter : missing) {
    if (parameter->fallback) scope->set(parameter->name, eval(*parameter->fallback, scope));
  }
  Writer out(meter());
  run(definition.body, scope, out);
  return Value(out.take());
}

// Hand over or refuse the arguments that are left.

/// Gives the arguments without a parameter to varargs and kwargs, or refuses them.
void Interpreter::bind_rest(const Stmt& definition, Arguments& arguments, Scope& scope) {
  const std::string name = definition.text.empty() ? "the caller" : "the macro " + definition.text;
  if (definition.uses_kwargs) {
    Dict rest;
    for (auto& [key, value] : arguments.keyword) rest.set(Value(key), std::move(value));
    scope.set("kwargs", Value::dict(std::move(rest)));
  } else if (!arguments.keyword.empty()) {
    fail(name + " takes no argument named '" + arguments.keyword[0].first + "'");
  }
  const std::size_t n = std::min(definition.parameters.size(), arguments.positional.size());
  if (definition.uses_varargs) {
    const auto first = arguments.positional.begin() + static_cast<std::ptrdiff_t>(n);
    scope.set("varargs", Value::tuple({first, arguments.positional.end()}));
  } else if (arguments.positional.size() > n) {
    fail(name + " takes at most " + std::to_string(definition.parameters.size()) + " arguments");
  }
}

}  // namespace rose::text::jinja
