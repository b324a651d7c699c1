// What stands beside the chapters: facts, references, glossary, units of measure, records of benches, values of tests.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "diagnostics.h"
#include "json.h"

namespace weave {

struct Fact {
  json::object fields;
  tangle::Span place;
  std::string_view get(std::string_view key) const { return text(fields, key); }
};

struct Term {
  std::string id, term, chapter, definition;
};

struct Record {
  std::string path;
  json::object fields;
  bool stale = false;  ///< the measured code has changed since
};

struct Bench {
  json::object fields;          ///< its entry in benchmarks/benches.yaml
  std::vector<Record> records;  ///< oldest first
};

struct Stores {
  std::deque<tangle::Source> sources;
  std::map<std::string, Fact, std::less<>> facts;
  std::map<std::string, Term, std::less<>> terms;
  std::map<std::string, json::object, std::less<>> references;  ///< CSL
  std::map<std::string, Bench, std::less<>> benches;
  std::vector<json::object> errata;
  json::object citation;                                    ///< CITATION.cff
  std::map<std::string, json::object, std::less<>> values;  ///< by test chunk, what the last run of the tests wrote

  const Fact* fact(std::string_view id) const { return find(facts, id); }
  const Term* term(std::string_view id) const { return find(terms, id); }
  const Bench* bench(std::string_view id) const { return find(benches, id); }

 private:
  template <class Map>
  static const typename Map::mapped_type* find(const Map& map, std::string_view key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : &found->second;
  }
};

/// Reads citations/, benchmarks/ and build/values/ under the current folder. What is wrong with them is reported.
void read_stores(Stores& stores, tangle::Diagnostics& diagnostics);

/// "31.3", "13.2", "1,284": a number as a table shows it.
std::string shown(double number);

double number_of(const json::value& value);

}  // namespace weave
