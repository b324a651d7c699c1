// The roles: which classes and keys exist, and which go together.
#include <algorithm>
#include <array>

#include "document.h"
#include "language.h"
#include "text.h"

namespace tangle {
namespace {

struct RoleClass {
  std::string_view name;
  Role role;
  std::string_view keys;  ///< what may be given, blank-separated; a key with "!" must be
};

constexpr std::array<RoleClass, 8> role_classes = {{
    {"test", Role::test, " title ns of "},
    {"bench", Role::bench, " title bench! "},
    {"example", Role::example, " title "},
    {"fail", Role::fail, " title expect! "},
    {"exercise", Role::exercise, " title ns "},
    {"solution", Role::solution, " title of! "},
    {"output", Role::output, " title of! "},
    {"sketch", Role::sketch, " title file ns of "},
}};
constexpr RoleClass code_class = {"code", Role::code, " title file "};
constexpr RoleClass table_class = {"bench table", Role::table, " title show "};

constexpr std::array<std::string_view, 3> flags = {"append", "replace", "plain"};
constexpr std::array<std::string_view, 8> all_keys = {"title", "file", "ns", "of", "bench", "expect", "show", "lang"};

void unknown_class(const ClassName& name, Diagnostics& diagnostics) {
  std::vector<std::string_view> known(flags.begin(), flags.end());
  for (const RoleClass& entry : role_classes) known.push_back(entry.name);
  Message& message = diagnostics.error("unknown-class", name.span, "unknown class \"." + printable(name.name) + "\"");
  const auto near = nearest(name.name, known);
  if (!near.empty()) message.help("did you mean " + join_or(near) + "?");
}

void unknown_key(const KeyValue& pair, std::string_view role, std::string_view allowed, Diagnostics& diagnostics) {
  const Span span{pair.span.source, pair.span.begin, pair.span.begin + static_cast<std::uint32_t>(pair.key.size())};
  if (std::find(all_keys.begin(), all_keys.end(), pair.key) != all_keys.end()) {
    diagnostics.error("unexpected-attribute", span,
                      "\"" + std::string(pair.key) + "\" means nothing on a " + std::string(role) + " fence");
    return;
  }
  std::vector<std::string_view> known;
  for (const std::string_view key : all_keys) {
    if (allowed.find(" " + std::string(key)) != std::string_view::npos) known.push_back(key);
  }
  Message& message = diagnostics.error("unknown-attribute", span, "unknown attribute \"" + printable(pair.key) + "\"");
  const auto near = nearest(pair.key, known);
  if (!near.empty()) message.help("did you mean " + join_or(near) + "?");
}

/// Reads the classes: at most one role, and the flags.
const RoleClass& read_classes(Fence& fence, Diagnostics& diagnostics) {
  const RoleClass* role = fence.language == "bench" ? &table_class : nullptr;
  if (fence.faulty) return role ? *role : code_class;
  for (const ClassName& name : fence.attributes.classes) {
    if (name.name == "append") fence.append = true;
    if (name.name == "replace") fence.replace = true;
    if (name.name == "plain") fence.plain = true;
    if (std::find(flags.begin(), flags.end(), name.name) != flags.end()) continue;
    const auto found = std::find_if(role_classes.begin(), role_classes.end(),
                                    [&](const RoleClass& entry) { return entry.name == name.name; });
    if (found == role_classes.end()) {
      unknown_class(name, diagnostics);
      fence.faulty = true;
    } else if (role && role != &*found) {
      diagnostics.error("two-roles", name.span,
                        "a fence has one role; this one is already a " + std::string(role->name));
    } else {
      role = &*found;
    }
  }
  if (fence.append && fence.replace) {
    diagnostics.error("two-roles", fence.attributes.span, "a chunk is appended or replaced, not both");
    fence.faulty = true;
  }
  return role ? *role : code_class;
}

void check_keys(const Fence& fence, const RoleClass& role, Diagnostics& diagnostics) {
  for (const KeyValue& pair : fence.attributes.pairs) {
    const std::string key(pair.key);
    const bool fits = role.keys.find(" " + key + " ") != std::string_view::npos ||
                      role.keys.find(" " + key + "! ") != std::string_view::npos;
    if (!fits) unknown_key(pair, role.name, role.keys, diagnostics);
    if (pair.value.empty() && fits) {
      diagnostics.error("empty-value", pair.span, "\"" + key + "\" is empty");
    }
  }
  for (std::size_t at = role.keys.find('!'); at != std::string_view::npos; at = role.keys.find('!', at + 1)) {
    const std::size_t begin = role.keys.rfind(' ', at) + 1;
    const std::string key(role.keys.substr(begin, at - begin));
    if (fence.attributes.find(key)) continue;
    diagnostics.error("missing-attribute", fence.place(), "a ." + std::string(role.name) + " fence needs " + key + "=");
  }
}

void check_language(const Fence& fence, Diagnostics& diagnostics) {
  const bool compiled = fence.role == Role::test || fence.role == Role::example || fence.role == Role::fail ||
                        fence.role == Role::exercise || fence.role == Role::solution || fence.role == Role::bench;
  if (compiled && !fence.language.empty() && !is_cpp(fence.language)) {
    diagnostics.error(
        "language-mismatch", fence.info,
        "a ." + std::string(role_name(fence.role)) + " chunk is cpp or cuda, not " + printable(fence.language));
  }
  const std::string_view file = fence.attributes.value("file");
  const std::string_view wanted = family_of_path(file);
  if (fence.role == Role::code && !wanted.empty() && wanted != family(fence.language)) {
    diagnostics.error(
        "language-mismatch", fence.attributes.find("file")->value_span,
        "the fence says " + printable(fence.language) + ", the file's ending says " + std::string(wanted));
  }
}

}  // namespace

std::string_view role_name(Role role) {
  constexpr std::array<std::string_view, 11> names = {"listing",  "code",     "test",   "bench",  "example", "fail",
                                                      "exercise", "solution", "output", "sketch", "table"};
  return names[static_cast<std::size_t>(role)];
}

void classify(Fence& fence, Diagnostics& diagnostics) {
  if (fence.attributes.span.source == nullptr) {
    const bool untold = is_cpp(fence.language) && !fence.lines.quoted && !fence.lines.broken;
    if (untold && fence.info.text().find('{') == std::string_view::npos) {
      diagnostics.error("untold-listing", fence.info, "this C++ does not say whether it is part of the program")
          .help("give it an id, or {.sketch} when it is only to be looked at");
    }
    return;
  }
  const RoleClass& role = read_classes(fence, diagnostics);
  fence.role = role.role;
  if (fence.faulty) return;
  check_keys(fence, role, diagnostics);
  const bool nameless = fence.role == Role::sketch || fence.role == Role::output;
  if (fence.attributes.id_span.source == nullptr && !nameless) {
    diagnostics.error("missing-id", fence.info, "this chunk needs an id: {#id …}");
  }
  check_language(fence, diagnostics);
}

}  // namespace tangle
