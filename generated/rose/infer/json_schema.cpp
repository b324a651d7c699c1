// Make a language of a JSON schema.

#include "rose/infer/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rose/core/error.h"
#include "rose/infer/json_number.h"
#include "rose/infer/regex.h"
#include "rose/infer/threads.h"

namespace rose::infer {

namespace {

namespace json = core::json;

// Sort the keywords.
constexpr std::array refused{"not",
                             "if",
                             "then",
                             "else",
                             "dependentRequired",
                             "dependencies",
                             "contains",
                             "minContains",
                             "maxContains",
                             "dependentSchemas",
                             "propertyNames",
                             "$anchor",
                             "$dynamicRef",
                             "unevaluatedItems",
                             "unevaluatedProperties",
                             "minProperties",
                             "maxProperties",
                             "patternProperties"};
constexpr std::array assertions{"type",
                                "enum",
                                "const",
                                "properties",
                                "required",
                                "additionalProperties",
                                "items",
                                "minItems",
                                "prefixItems",
                                "maxItems",
                                "pattern",
                                "minLength",
                                "maxLength",
                                "format",
                                "minimum",
                                "maximum",
                                "multipleOf",
                                "exclusiveMinimum",
                                "exclusiveMaximum",
                                "anyOf",
                                "allOf",
                                "oneOf",
                                "$ref"};
constexpr std::array all_types{"null", "boolean", "object", "array", "number", "string"};

template <std::size_t N>
bool listed(const std::array<const char*, N>& list, std::string_view key) {
  return std::ranges::any_of(list, [&](std::string_view k) { return k == key; });
}

bool asserts_nothing(const json::object& schema) {
  return std::ranges::none_of(schema, [](const auto& m) { return listed(assertions, m.key()); });
}

json::object without(json::object schema, std::string_view key) {
  schema.erase(key);
  return schema;
}

// Intersect languages without recursion.
std::optional<Automaton> automaton_of(Language& l, Language::Expression e) {
  const Language::Rule r = l.rule("part");
  l.define(r, e);
  try {
    return Automaton(l, r);
  } catch (const core::Error& error) {
    if (error.code() == core::Code::invalid_argument) return std::nullopt;  // nothing
    throw;
  }
}

Language::Expression intersection(Language& l, Language::Expression x, Language::Expression y) {
  const auto a = automaton_of(l, x), b = automaton_of(l, y);
  if (!a || !b) return l.choice({});
  using Pair = std::pair<std::int32_t, std::int32_t>;
  std::map<Pair, std::int32_t> known{{{a->start(), b->start()}, 0}};
  std::vector<Pair> todo{{a->start(), b->start()}};
  Machine machine;
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const auto [p, q] = todo[i];
    Machine::State state{.accepts = a->accepts(p) && b->accepts(q)};
    std::map<Pair, ByteSet> moves;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const Pair to{a->move(p, static_cast<unsigned char>(byte)),
                    b->move(q, static_cast<unsigned char>(byte))};
      if (to.first >= 0 && to.second >= 0) moves[to].set(byte);
    }
    for (const auto& [to, set] : moves) {
      const auto [at, added] = known.try_emplace(to, static_cast<std::int32_t>(todo.size()));
      if (added) todo.push_back(to);
      state.moves.emplace_back(set, at->second);
    }
    machine.states.push_back(std::move(state));
  }
  return l.machine(std::move(machine));
}

Machine none_of(const std::vector<std::string>& names) {
  ByteSet all;
  all.set();
  Machine m{.states = {{.accepts = true}, {.accepts = true, .moves = {{all, 1}}}}};
  std::map<std::pair<std::int32_t, char>, std::int32_t> child;
  std::set<std::int32_t> trie{0};
  for (const std::string& name : names) {
    std::int32_t at = 0;
    for (const char c : name) {
      const auto next = static_cast<std::int32_t>(m.states.size());
      const auto [to, added] = child.try_emplace({at, c}, next);
      if (added) m.states.push_back({.accepts = true}), trie.insert(next);
      at = to->second;
    }
    m.states[static_cast<std::size_t>(at)].accepts = false;
  }
  for (const std::int32_t s : trie) {
    ByteSet other = all;
    for (const auto& [edge, to] : child) {
      if (edge.first != s) continue;
      const auto b = static_cast<unsigned char>(edge.second);
      m.states[static_cast<std::size_t>(s)].moves.emplace_back(byte_range(b, b), to);
      other.reset(b);
    }
    m.states[static_cast<std::size_t>(s)].moves.emplace_back(other, 1);
  }
  return m;
}

bool reads(const Automaton& a, std::string_view text) {
  Stacks stacks;
  std::vector<Thread> threads{{a.start(), -1}};
  close_threads(a, stacks, threads, 0);
  for (const char c : text) {
    const std::size_t before = threads.size();
    step_threads(a, stacks, threads, 0, before, static_cast<unsigned char>(c));
    threads.erase(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(before));
  }
  return std::ranges::any_of(threads,
                             [&](const Thread& t) { return t.stack < 0 && a.accepts(t.state); });
}

// Write the common formats.
const char* format_pattern(std::string_view format) {
  // Days that every month has; a February of 29 days needs its year.
  static const std::string date =
      "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
      "|02-(0[1-9]|1[0-9]|2[0-8]))";
  static const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]"
      ")";
  static const std::string label = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?";
  static const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  static const std::map<std::string, std::string, std::less<>> known{
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"duration", "P([0-9]{1,4}W|[0-9]{1,4}D(T[0-9]{1,4}[HMS])?|T[0-9]{1,4}[HMS])"},
      {"email",
       "[a-zA-Z0-9_+-]{1,20}(\\.[a-zA-Z0-9_+-]{1,20}){0,2}@" + label + "(\\." + label + "){1,2}"},
      {"hostname", label + "(\\." + label + "){0,3}"},
      {"ipv4", "(" + byte + "\\.){3}" + byte},
      {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
      {"uuid", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"}};
  const auto at = known.find(format);
  return at == known.end() ? nullptr : at->second.c_str();
}

// Translate a schema, one keyword at a time.
class SchemaCompiler {
 public:
  using Expression = Language::Expression;
  SchemaCompiler(Language& l, const json::value& root, const JsonStyle& style)
      : l_(l), root_(root), style_(style) {}
  Language::Rule run();

 private:
  struct Member {
    Expression text;
    bool required;
  };
  [[noreturn]] static void fail(core::Code code, const std::string& where,
                                const std::string& what) {
    throw core::Error(code, what).in("schema" + where);
  }
  Expression schema(const json::value& s, const std::string& where);
  Expression of_type(std::string_view type, const json::object& s, const std::string& where);
  json::value merged(const json::object& a, const json::value& b, const std::string& where);
  void merge_member(json::object& into, std::string_view key, const json::value& value,
                    const std::string& where);
  json::value followed(const json::value& s, const std::string& where);
  const json::value& target(std::string_view reference, const std::string& where);
  Expression branches(const json::object& s, std::string_view key, const std::string& where);
  void require_disjoint(const json::array& list, const std::string& where);
  Expression literals(const json::object& s, const std::string& where);
  Expression string(const json::object& s, const std::string& where);
  Expression number(const json::object& s, bool integer, const std::string& where);
  Expression array(const json::object& s, const std::string& where);
  Expression object(const json::object& s, const std::string& where);
  Expression members(const std::vector<Member>& list, std::optional<Expression> further);
  Expression further_key(const std::vector<std::string>& names);
  std::vector<std::string> types_of(const json::object& s, const std::string& where);

  std::int32_t count(const json::object& s, std::string_view key, std::int32_t otherwise,
                     const std::string& where);
  Expression named(const std::string& name, const std::function<Expression()>& make);
  Expression space();
  Expression any();
  Expression any_string();
  Expression quoted(Expression inside) {
    return l_.sequence({l_.literal("\""), inside, l_.literal("\"")});
  }

  Language& l_;
  const json::value& root_;
  JsonStyle style_;
  std::map<std::string, Language::Rule> rules_;
  std::optional<Expression> space_;
  int depth_ = 0;
};

// Take a schema apart.
Language::Rule SchemaCompiler::run() {
  const Language::Rule r = l_.rule("schema");
  rules_["#"] = r;
  l_.define(r, schema(root_, ""));
  return r;
}

SchemaCompiler::Expression SchemaCompiler::named(const std::string& name,
                                                 const std::function<Expression()>& make) {
  const auto [at, added] = rules_.try_emplace(name, 0);
  if (added) {
    const Language::Rule r = at->second = l_.rule(name);
    l_.define(r, make());
    return l_.call(r);
  }
  return l_.call(at->second);
}

std::vector<std::string> SchemaCompiler::types_of(const json::object& s, const std::string& where) {
  const json::value* type = s.if_contains("type");
  if (type == nullptr) return {all_types.begin(), all_types.end()};
  json::array list;
  if (type->is_array()) list = type->get_array();
  if (type->is_string()) list.push_back(*type);
  std::vector<std::string> types;
  for (const json::value& t : list) {
    const std::string name(t.is_string() ? std::string_view(t.get_string()) : "");
    if (name != "integer" && !listed(all_types, name))
      fail(core::Code::invalid_argument, where + "/type", "a type is none of the seven");
    types.push_back(name);
  }
  if (types.empty()) fail(core::Code::invalid_argument, where + "/type", "a type is expected");
  return types;
}

SchemaCompiler::Expression SchemaCompiler::schema(const json::value& v, const std::string& where) {
  if (v.is_bool()) return v.get_bool() ? any() : l_.choice({});
  if (!v.is_object())
    fail(core::Code::invalid_argument, where, "a schema is an object, true or false");
  const json::object& s = v.get_object();
  for (const auto& member : s)
    if (listed(refused, member.key()) || (member.key() == "uniqueItems" && member.value() != false))
      fail(core::Code::unsupported, where + "/" + std::string(member.key()),
           fmt::format("{} cannot be guaranteed while a text is written",
                       std::string_view(member.key())));
  constexpr int deepest = 200;
  if (++depth_ > deepest)
    fail(core::Code::resource_exhausted, where, "schemas are nested too deeply");
  Expression e = -1;
  if (asserts_nothing(s)) {
    e = any();
  } else if (const json::value* ref = s.if_contains("$ref")) {
    const json::object rest = without(s, "$ref");
    const std::string_view name = ref->is_string() ? std::string_view(ref->get_string()) : "";
    const json::value& to = target(name, where);
    e = asserts_nothing(rest)
            ? named(std::string(name), [&] { return schema(to, std::string(name.substr(1))); })
            : schema(merged(rest, to, where), where);
  } else if (s.contains("allOf") || s.contains("anyOf") || s.contains("oneOf")) {
    e = branches(s, s.contains("allOf") ? "allOf" : s.contains("anyOf") ? "anyOf" : "oneOf", where);
  } else if (s.contains("enum") || s.contains("const")) {
    e = literals(s, where);
  } else {
    std::vector<Expression> parts;
    for (const std::string& type : types_of(s, where)) parts.push_back(of_type(type, s, where));
    e = l_.choice(std::move(parts));
  }
  --depth_;
  return e;
}

SchemaCompiler::Expression SchemaCompiler::of_type(std::string_view type, const json::object& s,
                                                   const std::string& where) {
  if (type == "null") return l_.literal("null");
  if (type == "boolean") return l_.choice({l_.literal("true"), l_.literal("false")});
  if (type == "integer" || type == "number") return number(s, type == "integer", where);
  if (type == "string") return string(s, where);
  const Language::Rule r = l_.rule(where + ":" + std::string(type));
  l_.define(r, type == "array" ? array(s, where) : object(s, where));
  return l_.call(r);
}

// Merge two schemas that both must hold.
json::value SchemaCompiler::merged(const json::object& a, const json::value& other,
                                   const std::string& where) {
  const json::value b = followed(other, where);
  if (b.is_bool()) return b.get_bool() ? json::value(a) : json::value(false);
  if (!b.is_object()) fail(core::Code::invalid_argument, where, "a branch is no schema");
  const auto closed_against = [&](const json::object& x, const json::object& y) {
    const json::value* further = x.if_contains("additionalProperties");
    const json::value* names = y.if_contains("properties");
    if (further == nullptr || *further == true || names == nullptr || !names->is_object()) return;
    const json::value* own = x.if_contains("properties");
    for (const auto& member : names->get_object())
      if (own == nullptr || !own->is_object() || !own->get_object().contains(member.key()))
        fail(core::Code::unsupported, where,
             fmt::format("additionalProperties meets the property {} of another schema",
                         std::string_view(member.key())));
  };
  closed_against(a, b.get_object());
  closed_against(b.get_object(), a);
  if ((a.contains("items") && b.get_object().contains("prefixItems")) ||
      (a.contains("prefixItems") && b.get_object().contains("items")))
    fail(core::Code::unsupported, where, "items meets prefixItems of another schema");
  json::object both = a;
  for (const auto& member : b.get_object()) merge_member(both, member.key(), member.value(), where);
  return both;
}

void SchemaCompiler::merge_member(json::object& into, std::string_view key,
                                  const json::value& value, const std::string& where) {
  json::value* mine = into.if_contains(key);
  if (mine == nullptr || !listed(assertions, key)) {
    into[key] = value;
  } else if (key == "required" && mine->is_array() && value.is_array()) {
    for (const json::value& name : value.get_array()) mine->get_array().push_back(name);
  } else if (key == "properties" && mine->is_object() && value.is_object()) {
    for (const auto& member : value.get_object()) {
      const auto [at, added] = mine->get_object().emplace(member.key(), member.value());
      if (!added && at->value() != member.value())
        at->value() = json::object{{"allOf", json::array{at->value(), member.value()}}};
    }
  } else if (key == "type") {
    json::array kept;
    const auto mine_types = types_of(into, where);
    for (const std::string& t : types_of({{"type", value}}, where)) {
      const bool same = std::ranges::find(mine_types, t) != mine_types.end();
      const bool number = std::ranges::find(mine_types, "number") != mine_types.end();
      const bool integer = std::ranges::find(mine_types, "integer") != mine_types.end();
      if (same || (t == "integer" && number)) kept.emplace_back(t);
      if (!same && t == "number" && integer) kept.emplace_back("integer");
    }
    if (kept.empty()) {  // nothing has both types
      into = {{"enum", json::array{}}};
    } else {
      into["type"] = std::move(kept);
    }
  } else if (*mine != value) {
    fail(core::Code::unsupported, where + "/" + std::string(key),
         "two schemas that both must hold have different values of this keyword");
  }
}

// Follow references, and take branches.
const json::value& SchemaCompiler::target(std::string_view reference, const std::string& where) {
  if (reference == "#") return root_;
  if (!reference.starts_with("#/"))
    fail(core::Code::unsupported, where + "/$ref",
         fmt::format("{} is not a place within this schema", reference));
  boost::system::error_code error;
  const json::value* at = root_.find_pointer(reference.substr(1), error);
  if (at == nullptr)
    fail(core::Code::invalid_argument, where + "/$ref", fmt::format("there is no {}", reference));
  return *at;
}

json::value SchemaCompiler::followed(const json::value& s, const std::string& where) {
  if (!s.is_object() || !s.get_object().contains("$ref")) return s;
  constexpr int deepest = 200;
  if (depth_ > deepest) fail(core::Code::resource_exhausted, where, "references never end");
  const json::value& ref = s.get_object().at("$ref");
  const std::string_view name = ref.is_string() ? std::string_view(ref.get_string()) : "";
  ++depth_;
  json::value whole = merged(without(s.get_object(), "$ref"), target(name, where), where);
  --depth_;
  return whole;
}

SchemaCompiler::Expression SchemaCompiler::branches(const json::object& s, std::string_view key,
                                                    const std::string& where) {
  const std::string place = where + "/" + std::string(key);
  const json::value& value = s.at(key);
  if (!value.is_array() || value.get_array().empty())
    fail(core::Code::invalid_argument, place, "a list of schemas is expected");
  const json::array& list = value.get_array();
  const json::object rest = without(s, key);
  if (key == "allOf") {
    json::value all = rest;
    for (const json::value& branch : list)
      if (all.is_object()) all = merged(all.get_object(), branch, place);
    return schema(all, where);
  }
  if (key == "oneOf") require_disjoint(list, place);
  std::vector<Expression> parts;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("{}/{}", place, i);
    parts.push_back(asserts_nothing(rest) ? schema(list[i], at)
                                          : schema(merged(rest, list[i], at), at));
  }
  return l_.choice(std::move(parts));
}

// See that branches exclude each other.
void SchemaCompiler::require_disjoint(const json::array& list, const std::string& where) {
  std::vector<json::value> branch;
  for (const json::value& b : list) branch.push_back(followed(b, where));
  const auto constants = [&](const json::value& s) -> std::optional<json::array> {
    if (!s.is_object()) return std::nullopt;
    if (const auto* c = s.get_object().if_contains("const")) return json::array{*c};
    if (const auto* e = s.get_object().if_contains("enum"); e != nullptr && e->is_array())
      return e->get_array();
    return std::nullopt;
  };
  const auto share_no_constant = [&](const json::value& a, const json::value& b) {
    const auto x = constants(a), y = constants(b);
    return x && y && std::ranges::none_of(*x, [&](const json::value& v) {
             return std::ranges::find(*y, v) != y->end();
           });
  };
  const auto tagged_apart = [&](const json::object& a, const json::object& b) {
    const auto required = [](const json::object& s, const json::value& name) {
      const auto* list = s.if_contains("required");
      return list != nullptr && list->is_array() &&
             std::ranges::find(list->get_array(), name) != list->get_array().end();
    };
    const auto *p = a.if_contains("properties"), *q = b.if_contains("properties");
    if (p == nullptr || q == nullptr || !p->is_object() || !q->is_object()) return false;
    return std::ranges::any_of(p->get_object(), [&](const auto& member) {
      const auto* other = q->get_object().if_contains(member.key());
      const json::value name(member.key());
      return other != nullptr && required(a, name) && required(b, name) &&
             share_no_constant(member.value(), *other);
    });
  };
  const auto apart = [&](const json::value& a, const json::value& b) {
    if (share_no_constant(a, b)) return true;
    if (!a.is_object() || !b.is_object()) return false;
    const auto x = types_of(a.get_object(), where), y = types_of(b.get_object(), where);
    const auto overlaps = [&](const std::string& t) {
      return std::ranges::any_of(y, [&](const std::string& u) {
        return t == u || (t == "integer" && u == "number") || (t == "number" && u == "integer");
      });
    };
    if (std::ranges::none_of(x, overlaps)) return true;
    return x == std::vector<std::string>{"object"} && y == x &&
           tagged_apart(a.get_object(), b.get_object());
  };
  for (std::size_t i = 0; i < branch.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!apart(branch[i], branch[j]))
        throw core::Error(core::Code::unsupported,
                          fmt::format("branches {} and {} may both hold", j, i))
            .in("schema" + where)
            .hint("say anyOf, or give the branches a required member with different constants");
}

// Keep the literals that the other keywords admit.
SchemaCompiler::Expression SchemaCompiler::literals(const json::object& s,
                                                    const std::string& where) {
  json::array values;
  if (const json::value* list = s.if_contains("enum")) {
    if (!list->is_array())
      fail(core::Code::invalid_argument, where + "/enum", "a list is expected");
    values = list->get_array();
  }
  if (const json::value* one = s.if_contains("const")) {
    const bool among = std::ranges::find(values, *one) != values.end();
    values = !s.contains("enum") || among ? json::array{*one} : json::array{};
  }
  const json::object rest = without(without(s, "enum"), "const");
  std::optional<Automaton> admitted;
  if (!asserts_nothing(rest) && !values.empty()) {
    Language other;
    SchemaCompiler compiler(other, root_, style_);
    const Language::Rule r = other.rule("rest");
    other.define(r, compiler.schema(rest, where));
    try {
      admitted.emplace(other, r);
    } catch (const core::Error& e) {
      if (e.code() != core::Code::invalid_argument) throw;
      values.clear();  // the other keywords admit nothing
    }
  }
  std::vector<Expression> parts;
  for (const json::value& v : values) {
    const std::string text = json::serialize(v);
    if (admitted && !reads(*admitted, text)) continue;
    parts.push_back(l_.literal(text));
  }
  return l_.choice(std::move(parts));
}

// Bound a string and hold it to its pattern.
std::int32_t SchemaCompiler::count(const json::object& s, std::string_view key,
                                   std::int32_t otherwise, const std::string& where) {
  if (s.if_contains(key) == nullptr) return otherwise;
  constexpr std::int64_t most = 100'000;
  const std::int64_t n = core::get_int(s, key, "schema" + where);
  if (n < 0) fail(core::Code::invalid_argument, where + "/" + std::string(key), "a negative count");
  if (n > most && key.starts_with("min"))
    fail(core::Code::resource_exhausted, where + "/" + std::string(key), "the count is too large");
  return n > most ? Language::unbounded : static_cast<std::int32_t>(n);
}

SchemaCompiler::Expression SchemaCompiler::string(const json::object& s, const std::string& where) {
  const std::int32_t least = count(s, "minLength", 0, where);
  const std::int32_t most = count(s, "maxLength", Language::unbounded, where);
  if (most != Language::unbounded && most < least) return l_.choice({});
  const bool bounded = least > 0 || most != Language::unbounded;
  std::vector<Expression> all;
  if (s.contains("pattern"))
    all.push_back(
        regex(l_, core::get_string(s, "pattern", "schema" + where), Spelling::json_string, false));
  if (const json::value* format = s.if_contains("format"); format != nullptr && format->is_string())
    if (const char* pattern = format_pattern(format->get_string()))
      all.push_back(regex(l_, pattern, Spelling::json_string, true));
  if (all.empty()) {
    if (!bounded) return any_string();
    return quoted(l_.repeat(any_json_char(l_), least, most));
  }
  if (bounded)
    all.push_back(
        l_.repeat(spell(l_, {{0, CharSet::highest}}, Spelling::json_string), least, most));
  Expression e = all.front();
  for (std::size_t i = 1; i < all.size(); ++i) e = intersection(l_, e, all[i]);
  return quoted(e);
}

// Bound a number.
SchemaCompiler::Expression SchemaCompiler::number(const json::object& s, bool integer,
                                                  const std::string& where) {
  NumberRange range{.integer = integer};
  const auto bound = [&](std::string_view key,
                         std::string_view exclusive) -> std::optional<NumberRange::Bound> {
    const json::value *closed = s.if_contains(key), *open = s.if_contains(exclusive);
    const bool flag = open != nullptr && open->is_bool() && open->get_bool();  // drafts before 6
    if (open != nullptr && open->is_bool()) open = nullptr;
    for (const json::value* v : {closed, open})
      if (v != nullptr && !v->is_number())
        fail(core::Code::invalid_argument, where + "/" + std::string(v == closed ? key : exclusive),
             "a number is expected");
    if (closed != nullptr && open != nullptr)
      fail(core::Code::unsupported, where + "/" + std::string(exclusive),
           fmt::format("{} is given as well", key));
    if (closed != nullptr) return NumberRange::Bound{decimal_of(*closed), flag};
    if (open != nullptr) return NumberRange::Bound{decimal_of(*open), true};
    return std::nullopt;
  };
  range.least = bound("minimum", "exclusiveMinimum");
  range.most = bound("maximum", "exclusiveMaximum");
  if (const json::value* m = s.if_contains("multipleOf")) {
    constexpr std::int64_t most = 500;
    const bool whole = m->is_number() && decimal_of(*m).fraction.empty();
    const std::int64_t n = whole ? core::get_int(s, "multipleOf", "schema" + where) : 0;
    if (n < 1 || n > most)
      fail(core::Code::unsupported, where + "/multipleOf",
           fmt::format("only integers from 1 to {} are", most));
    range.multiple = static_cast<std::int32_t>(n);
    range.integer = true;  // of 1, too
  }
  if (!range.least && !range.most && range.multiple == 1)
    return named(range.integer ? "integer" : "number", [&] { return json_number(l_, range); });
  return json_number(l_, range);
}

// Bound an array.
SchemaCompiler::Expression SchemaCompiler::array(const json::object& s, const std::string& where) {
  std::vector<Expression> prefix;
  if (const json::value* list = s.if_contains("prefixItems")) {
    if (!list->is_array())
      fail(core::Code::invalid_argument, where + "/prefixItems", "a list is expected");
    for (std::size_t i = 0; i < list->get_array().size(); ++i)
      prefix.push_back(schema(list->get_array()[i], fmt::format("{}/prefixItems/{}", where, i)));
  }
  const auto first = static_cast<std::int32_t>(prefix.size());
  const std::int32_t least = count(s, "minItems", 0, where);
  std::int32_t most = count(s, "maxItems", Language::unbounded, where);
  const json::value* items = s.if_contains("items");
  const bool closed = items != nullptr ? *items == false
                                       : first > 0 && least <= first;  // no items beyond the prefix
  if (closed) most = most == Language::unbounded ? first : std::min(most, first);
  if (most != Language::unbounded && most < least) return l_.choice({});
  const Expression item = items != nullptr && !closed ? schema(*items, where + "/items") : any();
  const Expression comma = l_.sequence({l_.literal(","), space()});
  // What follows after i elements.
  std::function<Expression(std::int32_t)> after = [&](std::int32_t i) -> Expression {
    if (i == most) return l_.sequence({});
    if (i >= first && i > 0) {
      const std::int32_t more = most == Language::unbounded ? most : most - i;
      return l_.repeat(l_.sequence({comma, item}), std::max(least - i, 0), more);
    }
    const Expression element = i < first ? prefix[static_cast<std::size_t>(i)] : item;
    std::vector<Expression> parts;
    if (i > 0) parts.push_back(comma);
    parts.push_back(element);
    parts.push_back(after(i + 1));
    const Expression e = l_.sequence(std::move(parts));
    return i < least ? e : l_.optional(e);
  };
  return l_.sequence({l_.literal("["), space(), after(0), space(), l_.literal("]")});
}

// Write an object's members in order.
SchemaCompiler::Expression SchemaCompiler::members(const std::vector<Member>& list,
                                                   std::optional<Expression> further) {
  const Expression comma = l_.sequence({l_.literal(","), space()});
  Expression written = l_.sequence({}), nothing = l_.sequence({});
  if (further) {
    written = l_.repeat(l_.sequence({comma, *further}), 0, Language::unbounded);
    nothing = l_.optional(l_.sequence({*further, written}));
  }
  for (std::size_t i = list.size(); i-- > 0;) {
    const Member& m = list[i];
    const Expression after = written;  // what follows once this one is there
    nothing = m.required ? l_.sequence({m.text, after})
                         : l_.choice({l_.sequence({m.text, after}), nothing});
    const Expression own = l_.sequence({comma, m.text});
    const Expression rest = l_.sequence({m.required ? own : l_.optional(own), after});
    const Language::Rule r = l_.rule("members");
    l_.define(r, rest);
    written = l_.call(r);
  }
  return nothing;
}

SchemaCompiler::Expression SchemaCompiler::further_key(const std::vector<std::string>& names) {
  const Expression chars =
      l_.repeat(spell(l_, {{0, CharSet::highest}}, Spelling::json_string), 0, Language::unbounded);
  if (names.empty()) return any_string();
  return quoted(intersection(l_, chars, l_.machine(none_of(names))));
}

SchemaCompiler::Expression SchemaCompiler::object(const json::object& s, const std::string& where) {
  json::object properties;
  if (const json::value* p = s.if_contains("properties")) {
    if (!p->is_object())
      fail(core::Code::invalid_argument, where + "/properties", "an object is expected");
    properties = p->get_object();
  }
  const json::value* further = s.if_contains("additionalProperties");
  std::set<std::string> required;
  if (s.contains("required")) {
    for (const json::value& name : core::get_array(s, "required", "schema" + where)) {
      if (!name.is_string())
        fail(core::Code::invalid_argument, where + "/required", "names are expected");
      required.insert(std::string(name.get_string()));
      if (!properties.contains(name.get_string()))
        properties[name.get_string()] = further != nullptr ? *further : json::value(true);
    }
  }
  std::vector<Member> list;
  std::vector<std::string> names;
  const auto member = [&](Expression key, Expression value) {
    return l_.sequence({key, l_.literal(":"), space(), value});
  };
  for (const auto& p : properties) {
    const std::string name(p.key());
    names.push_back(json_spelling(name));
    list.push_back({member(quoted(l_.literal(names.back())),
                           schema(p.value(), fmt::format("{}/properties/{}", where, name))),
                    required.contains(name)});
  }
  std::optional<Expression> more;
  if (further != nullptr ? *further != false : !s.contains("properties"))
    more = member(further_key(names),
                  further != nullptr ? schema(*further, where + "/additionalProperties") : any());
  return l_.sequence({l_.literal("{"), space(), members(list, more), space(), l_.literal("}")});
}

// Write any value, and the blanks between.
SchemaCompiler::Expression SchemaCompiler::space() {
  if (!style_.spaces) return l_.sequence({});
  if (!space_)
    space_ = l_.optional(l_.choice(
        {l_.literal(" "),
         l_.sequence({l_.literal("\n"), l_.repeat(l_.literal(" "), 0, style_.most_indent)})}));
  return *space_;
}

SchemaCompiler::Expression SchemaCompiler::any_string() {
  return named("string",
               [&] { return quoted(l_.repeat(any_json_char(l_), 0, Language::unbounded)); });
}

SchemaCompiler::Expression SchemaCompiler::any() {
  return named("any", [&] {
    std::vector<Expression> parts;
    parts.reserve(all_types.size());
    for (const char* type : all_types) parts.push_back(of_type(type, {}, "any"));
    return l_.choice(std::move(parts));
  });
}

}  // namespace

Language::Rule json_schema(Language& language, const json::value& schema, const JsonStyle& style) {
  return SchemaCompiler(language, schema, style).run();
}

}  // namespace rose::infer
