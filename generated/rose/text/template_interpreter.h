// Run a template.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/text/template_ast.h"
#include "rose/text/template_natives.h"

namespace rose::text::jinja {

// Hold the variables of one scope, and the scope around it.
struct Scope {
  std::shared_ptr<Scope> around;
  std::vector<std::pair<std::string, Value>> variables;

  explicit Scope(std::shared_ptr<Scope> outer) : around(std::move(outer)) {}
  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;  ///< here or further out
};
using ScopePtr = std::shared_ptr<Scope>;

struct Macro : Object {
  const Stmt* definition = nullptr;
  ScopePtr scope;  ///< where it was defined: that is what its body sees

  std::optional<Value> attribute(std::string_view name) override;
  std::string shown() const override;
};

// Know where a loop stands.
struct Loop : Object, std::enable_shared_from_this<Loop> {
  std::function<std::optional<Value>()> source;
  std::optional<Value> ahead;  ///< fetched early, by loop.last or loop.nextitem
  Value before, current;
  std::int64_t index0 = -1;
  std::optional<std::int64_t> known_length;
  std::int64_t depth0 = 0;
  std::optional<Value> last_changed;
  const Stmt* statement = nullptr;  ///< of a recursive loop
  ScopePtr scope;                   ///< around the loop, while it runs

  bool advance();
  const std::optional<Value>& peek();
  std::int64_t length();
  std::optional<Value> attribute(std::string_view name) override;
  std::optional<std::int64_t> size() override { return length(); }
  std::string shown() const override;
};

// Walk the tree once per rendering.
class Interpreter final : public Host {
 public:
  Interpreter(const Dict& context, const Limits& limits, std::int64_t now)
      : Host(limits), context_(&context), now_(now) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter() override;

  std::string render(const Block& program);  ///< throws LocatedFailure

  std::int64_t now() const override { return now_; }
  Value make_namespace(Dict attributes) override;
  Value call(const Value& callee, Arguments arguments);

 private:
  enum class Flow { on, broken, continued };

  Value eval(const Expr& expr, const ScopePtr& scope);
  Value eval_name(const Expr& expr, const ScopePtr& scope);
  Value eval_collection(const Expr& expr, const ScopePtr& scope);
  Value eval_access(const Expr& expr, const ScopePtr& scope);
  Value eval_operator(const Expr& expr, const ScopePtr& scope);
  Value eval_comparison(const Expr& expr, const ScopePtr& scope);
  Value eval_concat(const Expr& expr, const ScopePtr& scope);
  Value eval_call(const Expr& expr, const ScopePtr& scope, const Value* caller = nullptr);
  Value eval_native(const Expr& expr, const ScopePtr& scope, const Value* filtered = nullptr);
  Arguments eval_arguments(const CallArguments& from, const ScopePtr& scope);

  Flow run(const Block& block, const ScopePtr& scope, Writer& out);
  Flow run(const Stmt& stmt, const ScopePtr& scope, Writer& out);
  Flow run_branch(const Stmt& stmt, const ScopePtr& scope, Writer& out);
  Flow run_loop(const Stmt& stmt, const ScopePtr& scope, Writer& out, const Value& over,
                std::int64_t depth0);
  Flow run_set_block(const Stmt& stmt, const ScopePtr& scope);
  Flow run_with(const Stmt& stmt, const ScopePtr& scope, Writer& out);
  Flow run_filter_block(const Stmt& stmt, const ScopePtr& scope, Writer& out);
  Value apply(const Expr& filter, const ScopePtr& scope, const Value& value);
  void assign(const Target& target, Value value, Scope& scope, const ScopePtr& lookup);
  void check_namespaces(const Target& target, const ScopePtr& scope);

  Value make_macro(const Stmt& stmt, const ScopePtr& scope);
  Value call_macro(const Macro& macro, Arguments& arguments);
  void bind_rest(const Stmt& definition, Arguments& arguments, Scope& scope);
  Value call_loop(Loop& loop, Arguments& arguments);

  const Dict* context_;
  std::int64_t now_;
  std::uint32_t at_ = 0;  // what a failure is reported at
  int depth_ = 0;
  std::vector<std::shared_ptr<Space>> spaces_;  // may refer to themselves: emptied at the end
  std::vector<ScopePtr> closures_;              // so may scopes that hold macros
};

}  // namespace rose::text::jinja
