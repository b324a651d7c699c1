// Read what a hub says.

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/serve/hub.h"

namespace rose::serve {

namespace json = core::json;

// Believe nothing.
namespace {

[[noreturn]] void wrong(const std::string& what) {
  throw core::Error(core::Code::corrupt, what).in("the hub's listing");
}

std::string text_of(const json::object& object, std::string_view name, std::string_view where) {
  const json::value* value = core::find(object, name);
  if (value == nullptr || !value->is_string()) wrong(fmt::format("{} has no {}", where, name));
  return std::string(value->get_string());
}

std::string hash_of(const json::object& object, std::string_view name, std::size_t digits,
                    std::string_view where) {
  std::string out = text_of(object, name, where);
  const bool hex = std::ranges::all_of(
      out, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (out.size() != digits || !hex)
    wrong(fmt::format("the {} of {} is not {} hexadecimal digits", name, where, digits));
  return out;
}

void check_name(const std::string& name) {
  constexpr std::size_t longest = 1024;
  bool good = !name.empty() && name.size() <= longest && name.front() != '/' && name.back() != '/';
  for (const char c : name)
    good = good && static_cast<unsigned char>(c) >= ' ' && c != '\x7f' && c != '\\';
  for (std::size_t at = 0; good && at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = std::string_view(name).substr(at, end - at);
    good = !part.empty() && part != "." && part != "..";
    at = end + 1;
  }
  if (!good) wrong("a file has a name that would leave its folder, or is none");
}

std::uint64_t size_of(const json::object& object, const std::string& name) {
  const json::value* value = core::find(object, "size");
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0)
    wrong(fmt::format("{} has no size", name));
  return static_cast<std::uint64_t>(value->get_int64());
}

}  // namespace

HubListing parse_listing(std::string_view text) {
  constexpr std::size_t most_bytes = std::size_t{64} << 20, deepest = 16, most_files = 100'000;
  constexpr std::size_t git_digits = 40, sha256_digits = 64;
  const json::value parsed =
      core::parse_json(text, "the hub's listing", {.bytes = most_bytes, .depth = deepest});
  if (!parsed.is_object()) wrong("it is not an object");
  HubListing out;
  out.commit = hash_of(parsed.get_object(), "sha", git_digits, "the revision");
  const json::value* files = core::find(parsed.get_object(), "siblings");
  if (files == nullptr || !files->is_array()) wrong("it lists no files");
  if (files->get_array().size() > most_files) wrong("it lists too many files");
  for (const json::value& value : files->get_array()) {
    if (!value.is_object()) wrong("a file is not an object");
    const json::object& one = value.get_object();
    HubFile file{.name = text_of(one, "rfilename", "a file"), .hash = {}};
    check_name(file.name);
    file.size = size_of(one, file.name);
    const json::value* lfs = core::find(one, "lfs");
    file.large = lfs != nullptr && lfs->is_object();
    if (file.large)
      file.hash = hash_of(lfs->get_object(), "sha256", sha256_digits, file.name);
    else
      file.hash = hash_of(one, "blobId", git_digits, file.name);
    out.files.push_back(std::move(file));
  }
  return out;
}

// Choose files.
namespace {

bool fits(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= name.size(); ++at)
    if (fits(rest, name.substr(at))) return true;
  return false;
}

}  // namespace

std::vector<HubFile> choose_files(const HubListing& listing,
                                  const std::vector<std::string>& patterns) {
  static const std::vector<std::string> usual{"config.json",        "generation_config.json",
                                              "tokenizer.json",     "tokenizer_config.json",
                                              "vocab.json",         "merges.txt",
                                              "added_tokens.json",  "tokenizer.model",
                                              "*.tiktoken",         "special_tokens_map.json",
                                              "chat_template.json", "chat_template.jinja",
                                              "*.safetensors",      "*.safetensors.index.json",
                                              "adapter_config.json"};
  constexpr std::size_t longest = 256, most_stars = 8;
  for (const std::string& pattern : patterns)  // matching one with many stars takes for ever
    if (pattern.size() > longest || std::ranges::count(pattern, '*') > std::ptrdiff_t{most_stars})
      throw core::Error(core::Code::invalid_argument, "the pattern has too many stars").in(pattern);
  std::vector<HubFile> out;
  bool weights = false;
  std::string others;
  for (const HubFile& file : listing.files) {
    const bool nested = patterns.empty() && file.name.find('/') != std::string::npos;
    const bool taken = !nested && std::ranges::any_of(patterns.empty() ? usual : patterns,
                                                      [&](const std::string& pattern) {
                                                        return fits(pattern, file.name);
                                                      });
    weights = weights || (taken && file.name.ends_with(".safetensors"));
    if (taken)
      out.push_back(file);
    else if (file.large)
      others += (others.empty() ? "" : ", ") + file.name;
  }
  if (out.empty() || (patterns.empty() && !weights))
    throw core::Error(core::Code::not_found, patterns.empty() ? "there are no safetensors in it"
                                                              : "no file fits --include")
        .in("the repository")
        .hint(others.empty() ? "" : "--include takes names or patterns; there are: " + others);
  return out;
}

}  // namespace rose::serve
