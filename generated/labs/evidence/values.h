// Let a test leave a number for the text.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "rose/core/files.h"
#include "rose/core/json.h"

namespace rose::labs {

/// Writes `name` into build/values/TEST.json, where [n](test:TEST#name) in a chapter finds it.
/// TEST is the id of the calling chunk. Other names in the file are kept.
inline void write_value(std::string_view test, std::string_view name, double value) {
  const char* chosen = std::getenv("ROSE_VALUES");
  const std::filesystem::path folder = chosen != nullptr ? chosen : "build/values";
  const std::filesystem::path path = folder / (std::string(test) + ".json");
  std::filesystem::create_directories(folder);
  core::json::value values = core::json::object();
  if (std::filesystem::exists(path)) {
    values = core::parse_json(core::read_file(path), path.string());
  }
  values.as_object()[name] = value;
  core::write_file_atomic(path, core::pretty_json(values) + "\n");
}

}  // namespace rose::labs
