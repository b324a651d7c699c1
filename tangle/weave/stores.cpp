#include "stores.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "cache.h"
#include "files.h"
#include "text.h"

namespace weave {
namespace {

namespace fs = std::filesystem;

/// Plain scalars that are numbers become numbers; quoted ones stay text.
json::value scalar(const YAML::Node& node) {
  const std::string& word = node.Scalar();
  if (node.Tag() != "!") {
    std::int64_t whole = 0;
    const char* end = word.data() + word.size();
    if (const auto [stop, error] = std::from_chars(word.data(), end, whole); error == std::errc() && stop == end)
      return whole;
  }
  return json::value(word);
}

json::value to_json(const YAML::Node& node) {
  if (node.IsSequence()) {
    json::array items;
    for (const YAML::Node& each : node) items.push_back(to_json(each));
    return items;
  }
  if (node.IsMap()) {
    json::object fields;
    for (const auto& pair : node) fields[pair.first.Scalar()] = to_json(pair.second);
    return fields;
  }
  return node.IsScalar() ? scalar(node) : json::value(nullptr);
}

class Reader {
 public:
  Reader(Stores& stores, tangle::Diagnostics& diagnostics) : stores_(stores), diagnostics_(diagnostics) {}

  void run() {
    for (const std::string& path : files("citations/facts", ".yaml"))
      each_entry(path, [this](const YAML::Node& node, tangle::Span place) { fact(node, place); });
    each_entry("citations/glossary.yaml", [this](const YAML::Node& node, tangle::Span place) { term(node, place); });
    each_entry("citations/references.yaml", [this](const YAML::Node& node, tangle::Span) {
      const json::value entry = to_json(node);
      stores_.references[std::string(text(entry.as_object(), "id"))] = entry.as_object();
    });
    each_entry("citations/errata.yaml",
               [this](const YAML::Node& node, tangle::Span) { stores_.errata.push_back(to_json(node).as_object()); });
    citation();
    benches();
    values();
  }

 private:
  static std::vector<std::string> files(const std::string& folder, std::string_view ending) {
    std::vector<std::string> found;
    for (const std::string& stem : tangle::stems_in(folder, ending)) {
      found.push_back(tangle::concat(folder, '/', stem, ending));
    }
    return found;
  }

  const tangle::Source* open(const std::string& path) {
    std::optional<std::string> bytes = tangle::read_file(path);
    if (!bytes) return nullptr;
    return &stores_.sources.emplace_back(path, std::move(*bytes));
  }

  static tangle::Span at(const tangle::Source& source, const YAML::Mark& mark) {
    const auto begin = static_cast<std::uint32_t>(std::max(mark.pos, 0));
    return {&source, begin, begin};
  }

  template <class Use>
  void each_entry(const std::string& path, const Use& use) {
    const tangle::Source* source = open(path);
    if (source == nullptr) return;
    try {
      YAML::Node root = YAML::Load(std::string(source->text));
      if (root.IsMap()) root = root.begin()->second;  // references.yaml has one key, `references`
      for (const YAML::Node& node : root) {
        if (node.IsMap() && node["id"].IsDefined()) use(node, at(*source, node["id"].Mark()));
      }
    } catch (const YAML::Exception& error) {
      diagnostics_.error("bad-yaml", at(*source, error.mark), error.msg);
    }
  }

  void fact(const YAML::Node& node, tangle::Span place) {
    Fact fact{to_json(node).as_object(), place};
    const std::string id(fact.get("id"));
    const std::string_view grade = fact.get("grade");
    if ((grade == "D" || grade == "C") && (fact.get("source").empty() || fact.get("locator").empty()))
      diagnostics_.error("fact-without-source", place,
                         "fact '" + id + "' has grade " + std::string(grade) + " and no source with a locator");
    if (grade == "I" && fact.get("assumptions").empty())
      diagnostics_.error("fact-without-assumptions", place, "fact '" + id + "' is inferred and states no assumptions");
    if (!stores_.facts.emplace(id, std::move(fact)).second)
      diagnostics_.error("duplicate-fact", place, "fact '" + id + "' exists twice");
  }

  void term(const YAML::Node& node, tangle::Span) {
    const json::value entry = to_json(node);
    const json::object& fields = entry.as_object();
    Term term{std::string(text(fields, "id")), std::string(text(fields, "term")), std::string(text(fields, "chapter")),
              std::string(text(fields, "definition"))};
    stores_.terms[term.id] = term;
  }

  void citation() {
    const tangle::Source* source = open("CITATION.cff");
    if (source == nullptr) return;
    try {
      stores_.citation = to_json(YAML::Load(std::string(source->text))).as_object();
    } catch (const YAML::Exception& error) {
      diagnostics_.error("bad-yaml", at(*source, error.mark), error.msg);
    }
  }

  void benches() {
    const tangle::Source* source = open("benchmarks/benches.yaml");
    if (source == nullptr) return;
    try {
      for (const auto& pair : YAML::Load(std::string(source->text)))
        stores_.benches[pair.first.Scalar()].fields = to_json(pair.second).as_object();
    } catch (const YAML::Exception& error) {
      diagnostics_.error("bad-yaml", at(*source, error.mark), error.msg);
    }
    std::error_code none;
    for (const fs::directory_entry& folder : fs::directory_iterator("benchmarks/results", none)) {
      if (!folder.is_directory()) continue;
      for (const std::string& path : files(folder.path().string(), ".json"))
        record(folder.path().filename().string(), path);
    }
    for (auto& [id, bench] : stores_.benches)
      std::stable_sort(bench.records.begin(), bench.records.end(), [](const Record& a, const Record& b) {
        return text(a.fields, "date") < text(b.fields, "date");
      });
  }

  void record(const std::string& id, const std::string& path) {
    const tangle::Source* source = open(path);
    if (source == nullptr) return;
    boost::system::error_code failed;
    const json::value parsed = json::parse({source->text.data(), source->text.size()}, failed);
    if (failed || !parsed.is_object()) {
      diagnostics_.error("bad-record", {source, 0, 0}, "this is no JSON object");
      return;
    }
    Record record{path, parsed.get_object(), false};
    for (const std::string_view key : {"bench", "unit", "median", "device", "command", "date"}) {
      if (record.fields.if_contains(key) == nullptr)
        diagnostics_.error("bad-record", {source, 0, 0},
                           "the record has no '" + std::string(key) + "' (benchmarks/record.schema.json)");
    }
    record.stale = hash_of(list(record.fields, "code")) != text(record.fields, "code_hash");
    stores_.benches[id].records.push_back(std::move(record));
  }

  /// As benchmarks/run.py: the hash over "path NUL hash-of-content LF" of each file.
  static std::string hash_of(const json::array& names) {
    std::string all;
    for (const json::value& name : names) {
      const std::string path(view(name.as_string()));
      all += path + '\0' + sha256(tangle::read_file(path).value_or("")) + '\n';
    }
    return sha256(all);
  }

  void values() {
    for (const std::string& path : files("build/values", ".json")) {
      boost::system::error_code failed;
      const json::value parsed = json::parse(tangle::read_file(path).value_or(""), failed);
      if (!failed && parsed.is_object()) stores_.values[fs::path(path).stem().string()] = parsed.get_object();
    }
  }

  Stores& stores_;
  tangle::Diagnostics& diagnostics_;
};

}  // namespace

void read_stores(Stores& stores, tangle::Diagnostics& diagnostics) { Reader(stores, diagnostics).run(); }

double number_of(const json::value& value) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_string()) {
    const std::string word(view(value.get_string()));
    return std::strtod(word.c_str(), nullptr);
  }
  return std::nan("");
}

std::string shown(double number) {
  std::array<char, 64> buffer{};
  const double size = std::fabs(number);
  const int decimals = size >= 1000 || number == std::floor(number) ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, number);
  std::string digits(buffer.data());
  std::size_t point = digits.find('.');
  if (point == std::string::npos) point = digits.size();
  for (std::size_t at = point; at > 3 + (digits[0] == '-' ? 1U : 0U); at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace weave
