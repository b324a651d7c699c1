// Read the file, apply what the command line says, write it back.

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/trainer/config.h"

namespace rose::trainer {

using core::Code;
using core::Error;

namespace {

struct Given {
  std::string key, value, where;
};

// Flatten a tree into keys with dots.
std::string place(std::string_view where, const YAML::Mark& mark) {
  return fmt::format("{}:{}:{}", where, mark.line + 1, mark.column + 1);
}

void flatten(const YAML::Node& node, const std::string& prefix, std::string_view where,
             std::vector<Given>& out) {
  for (const auto& entry : node) {
    const auto key = prefix + entry.first.as<std::string>();
    const YAML::Node& value = entry.second;
    const std::string at = place(where, entry.first.Mark());
    if (value.IsMap()) {
      flatten(value, key + ".", where, out);
      continue;
    }
    std::string text;
    if (value.IsScalar()) text = value.as<std::string>();
    if (value.IsSequence()) {
      for (const YAML::Node& item : value) {
        if (!item.IsScalar())
          throw Error(Code::invalid_argument, fmt::format("{} must be a list of texts", key))
              .in(at);
        text += item.as<std::string>() + "\n";
      }
    }
    out.push_back({key, text, at});
  }
}

// Set what is given, and refuse what is not in the table.
void set_all(const std::vector<Given>& given, const std::vector<ConfigKey>& keys) {
  for (const Given& g : given) {
    const auto key = std::ranges::find(keys, g.key, &ConfigKey::name);
    if (key == keys.end()) {
      std::vector<std::string> names(keys.size());
      std::ranges::transform(keys, names.begin(), &ConfigKey::name);
      throw Error(Code::invalid_argument, fmt::format("there is no key \"{}\"", g.key))
          .in(g.where)
          .hint(fmt::format("did you mean \"{}\"?", nearest_name(g.key, names)));
    }
    try {
      key->set(g.value);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", g.key, error.message()))
          .in(g.where)
          .hint(error.hint().empty() ? key->help : error.hint());
    }
  }
}

Given split_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(Code::invalid_argument, "an override has the form KEY=VALUE")
        .in(text)
        .hint("for example --set optimizer.rate=1e-3");
  }
  Given given{text.substr(0, equals), text.substr(equals + 1), "the command line"};
  const bool list = given.value.starts_with('[') && given.value.ends_with(']');
  if (!list) return given;
  std::string items;
  for (const YAML::Node& item : YAML::Load(given.value)) items += item.as<std::string>() + "\n";
  given.value = items;
  return given;
}

}  // namespace

// Read and write a configuration.
TrainConfig parse_config(std::string_view yaml, std::string_view where,
                         const std::vector<std::string>& overrides) {
  TrainConfig config;
  std::vector<Given> given;
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    if (!root.IsNull() && !root.IsMap())
      throw Error(Code::invalid_argument, "a configuration is a list of KEY: VALUE")
          .in(std::string(where));
    flatten(root, "", where, given);
    for (const std::string& text : overrides) given.push_back(split_override(text));
  } catch (const YAML::Exception& error) {
    throw Error(Code::corrupt, fmt::format("this is not YAML: {}", error.msg))
        .in(place(where, error.mark));
  }
  set_all(given, config_keys(config));
  config.rate.steps = config.steps;
  check(config);
  return config;
}

TrainConfig read_config(const std::filesystem::path& file,
                        const std::vector<std::string>& overrides) {
  return parse_config(core::read_file(file), file.string(), overrides);
}

std::string to_yaml(const TrainConfig& config) {
  TrainConfig copy = config;
  std::string out, section;
  for (const ConfigKey& key : config_keys(copy)) {
    const std::size_t dot = key.name.find('.');
    const std::string in = dot == std::string::npos ? "" : key.name.substr(0, dot);
    if (in != section) out += fmt::format("\n{}:\n", in);
    section = in;
    const std::string line =
        fmt::format("{}{}: {}", in.empty() ? "" : "  ",
                    dot == std::string::npos ? key.name : key.name.substr(dot + 1), key.get());
    out += fmt::format("{:<40}  # {}\n", line, key.help);
  }
  return out;
}

}  // namespace rose::trainer
