// A tangler small enough to read in one sitting.

#pragma once

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rose::labs {

// Collect the chunks of a text by name.
using Chunks = std::map<std::string, std::vector<std::string>>;

inline Chunks read_chunks(std::string_view markdown) {
  Chunks chunks;
  std::vector<std::string>* open = nullptr;
  std::istringstream in{std::string(markdown)};
  for (std::string line; std::getline(in, line);) {
    const std::size_t name = line.find("{#");
    if (open != nullptr && line == "```") {
      open = nullptr;
    } else if (open != nullptr) {
      open->push_back(line);
    } else if (line.starts_with("```") && name != std::string::npos) {
      const std::size_t end = line.find_first_of(" }", name);
      open = &chunks[line.substr(name + 2, end - name - 2)];
    }
  }
  return chunks;
}

// Tell a reference from code that shifts.
inline std::string reference_in(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = line.substr(begin);
  if (rest.size() < 5 || !rest.starts_with("<<") || !rest.ends_with(">>")) return {};
  const std::string_view name = rest.substr(2, rest.size() - 4);
  return std::string(name.find_first_of("<> ") == std::string_view::npos ? name : "");
}

// Follow the names, and keep the indentation of each use.
inline void expand(const Chunks& chunks, const std::string& name, const std::string& indent,
                   std::vector<std::string>& path, std::string& out) {
  const auto found = chunks.find(name);
  if (found == chunks.end()) throw std::runtime_error("no chunk is called " + name);
  const bool again = std::find(path.begin(), path.end(), name) != path.end();
  path.push_back(name);
  if (again) {
    std::string way;
    for (const std::string& hop : path) way += (way.empty() ? "" : " -> ") + hop;
    throw std::runtime_error("a chunk contains itself: " + way);
  }
  for (const std::string& line : found->second) {
    const std::string next = reference_in(line);
    if (!next.empty()) {
      expand(chunks, next, indent + line.substr(0, line.find('<')), path, out);
    } else {
      out += line.empty() ? "\n" : indent + line + "\n";
    }
  }
  path.pop_back();
}

inline std::string tangle(std::string_view markdown, const std::string& root) {
  std::vector<std::string> path;
  std::string out;
  expand(read_chunks(markdown), root, "", path, out);
  return out;
}

}  // namespace rose::labs
