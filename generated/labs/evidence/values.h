// Let a test leave a number for the text.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

namespace rose::labs {

/// Writes `name` into build/values/TEST.json, where [n](test:TEST#name) in a chapter finds it.
/// TEST is the id of the calling chunk; the file holds what this run has written for it.
inline void write_value(const std::string& test, const std::string& name, double value) {
  static std::map<std::string, std::map<std::string, double>> written;
  written[test][name] = value;
  const char* chosen = std::getenv("ROSE_VALUES");
  const std::filesystem::path folder = chosen != nullptr ? chosen : "build/values";
  std::filesystem::create_directories(folder);
  const std::filesystem::path path = folder / (test + ".json"), temporary = path.string() + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) throw std::runtime_error("cannot write " + temporary.string());
  const char* separator = "{";
  for (const auto& [key, number] : written[test]) {
    std::fprintf(file, "%s\n  \"%s\": %.17g", separator, key.c_str(), number);
    separator = ",";
  }
  std::fputs("\n}\n", file);
  if (std::fclose(file) != 0) throw std::runtime_error("cannot write " + temporary.string());
  std::filesystem::rename(temporary, path);  // complete or absent
}

}  // namespace rose::labs
