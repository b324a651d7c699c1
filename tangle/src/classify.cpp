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
  std::string_view needs;   ///< the key that must be given, beside the title that may be
  std::string_view others;  ///< those that may, between blanks

  bool allows(std::string_view key) const {
    return key == "title" || key == needs || others.find(concat(' ', key, ' ')) != std::string_view::npos;
  }
};

constexpr std::array<RoleClass, 8> role_classes = {{
    {"test", Role::test, "", " ns of "},
    {"bench", Role::bench, "bench", ""},
    {"example", Role::example, "", ""},
    {"fail", Role::fail, "expect", ""},
    {"exercise", Role::exercise, "", " ns "},
    {"solution", Role::solution, "of", ""},
    {"output", Role::output, "of", ""},
    {"sketch", Role::sketch, "", " file ns of "},
}};
constexpr RoleClass code_class = {"code", Role::code, "", " file "};
constexpr RoleClass table_class = {"bench table", Role::table, "", " show "};

constexpr std::array<std::string_view, 3> flags = {"append", "replace", "plain"};
constexpr std::array<std::string_view, 8> all_keys = {"title", "file", "ns", "of", "bench", "expect", "show", "lang"};

void unknown_class(const ClassName& name, Diagnostics& diagnostics) {
  std::vector<std::string_view> known(flags.begin(), flags.end());
  for (const RoleClass& entry : role_classes) known.push_back(entry.name);
  diagnostics.error("unknown-class", name.span, "unknown class " + quoted("." + printable(name.name)))
      .help(did_you_mean(name.name, known));
}

void unknown_key(const KeyValue& pair, const RoleClass& role, Diagnostics& diagnostics) {
  const Span span{pair.span.source, pair.span.begin, pair.span.begin + static_cast<std::uint32_t>(pair.key.size())};
  if (std::ranges::find(all_keys, pair.key) != all_keys.end()) {
    diagnostics.error("unexpected-attribute", span,
                      concat(quoted(pair.key), " means nothing on a ", role.name, " fence"));
    return;
  }
  std::vector<std::string_view> known;
  std::ranges::copy_if(all_keys, std::back_inserter(known), [&](std::string_view key) { return role.allows(key); });
  diagnostics.error("unknown-attribute", span, "unknown attribute " + quoted(printable(pair.key)))
      .help(did_you_mean(pair.key, known));
}

/// Reads the classes: at most one role, and the flags.
const RoleClass& read_classes(Fence& fence, Diagnostics& diagnostics) {
  const RoleClass* role = fence.language == "bench" ? &table_class : nullptr;
  if (fence.faulty) return role ? *role : code_class;
  for (const ClassName& name : fence.attributes.classes) {
    if (name.name == "append") fence.append = true;
    if (name.name == "replace") fence.replace = true;
    if (name.name == "plain") fence.plain = true;
    if (std::ranges::find(flags, name.name) != flags.end()) continue;
    const auto found = std::ranges::find(role_classes, name.name, &RoleClass::name);
    if (found == role_classes.end()) {
      unknown_class(name, diagnostics);
      fence.faulty = true;
    } else if (role && role != &*found) {
      diagnostics.error("two-roles", name.span, concat("a fence has one role; this one is already a ", role->name));
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
    if (!role.allows(pair.key)) unknown_key(pair, role, diagnostics);
    else if (pair.value.empty()) diagnostics.error("empty-value", pair.span, quoted(pair.key) + " is empty");
  }
  if (role.needs.empty() || fence.attributes.find(role.needs)) return;
  diagnostics.error("missing-attribute", fence.place(), concat("a .", role.name, " fence needs ", role.needs, "="));
}

void check_language(const Fence& fence, Diagnostics& diagnostics) {
  const bool compiled = fence.role == Role::test || fence.role == Role::example || fence.role == Role::fail ||
                        fence.role == Role::exercise || fence.role == Role::solution || fence.role == Role::bench;
  if (compiled && !fence.language.empty() && !is_cpp(fence.language)) {
    diagnostics.error("language-mismatch", fence.info,
                      concat("a .", role_name(fence.role), " chunk is cpp or cuda, not ", printable(fence.language)));
  }
  const KeyValue* file = fence.file();
  const std::string_view wanted = file ? family_of_path(file->value) : "";
  if (!wanted.empty() && wanted != family(fence.language)) {
    diagnostics.error("language-mismatch", file->value_span,
                      concat("the fence says ", printable(fence.language), ", the file's ending says ", wanted));
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
