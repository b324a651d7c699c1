// Look in the places where models lie.

#include "rose/app/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::app {

namespace fs = std::filesystem;
using core::Code;
using core::Error;

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// List one folder of models, sorted by name.
void add_own_models(const fs::path& folder, std::vector<FoundModel>& found) {
  std::error_code ignored;  // a missing or unreadable folder holds no models
  std::vector<FoundModel> here;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path& path = entry.path();
    const bool gguf = path.extension() == ".gguf" && entry.is_regular_file(ignored);
    if (!gguf && !fs::exists(path / "config.json", ignored)) continue;
    here.push_back(
        {gguf ? path.stem().string() : path.filename().string(), path, "RoseLLM's cache"});
  }
  std::ranges::sort(here, {}, &FoundModel::name);
  found.insert(found.end(), here.begin(), here.end());
}

}  // namespace

fs::path cache_folder() {
  if (const std::string own = environment("ROSE_CACHE"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty())
    return fs::path(xdg) / "rosellm";
  return fs::path(environment("HOME")) / ".cache" / "rosellm";
}

std::vector<FoundModel> find_models() {
  std::vector<FoundModel> found;
  if (const std::string path = environment("ROSE_MODEL"); !path.empty()) {
    found.push_back({fs::path(path).stem().string(), path, "the variable ROSE_MODEL"});
  }
  add_own_models(cache_folder() / "models", found);
  for (auto& [name, path] : model::list_hub_cache()) {
    found.push_back({name, path, "the Hugging Face cache"});
  }
  return found;
}

// Resolve a name, or say what would have worked.
fs::path find_model(const std::string& name) {
  std::error_code ignored;
  if (!name.empty() && fs::exists(name, ignored)) return name;
  const std::vector<FoundModel> models = find_models();
  if (name.empty()) {
    if (models.empty()) {
      throw Error(Code::not_found, "there is no model on this machine")
          .in((cache_folder() / "models").string())
          .hint(
              "`make demo` brings a small one; --model takes a GGUF file or a Hugging Face folder");
    }
    return models.front().path;
  }
  std::vector<std::string> names;
  for (const FoundModel& model : models) {
    if (model.name == name) return model.path;
    names.push_back(model.name);
  }
  throw Error(Code::not_found, "no such file, folder or known model")
      .in(name)
      .hint(names.empty() ? "give the path of a GGUF file or of a Hugging Face folder"
                          : fmt::format("known here: {}", fmt::join(names, ", ")));
}

kernels::DType dtype_named(std::string_view name) {
  using kernels::DType;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q5_1,
                            DType::q5_0, DType::q4_1, DType::q4_0}) {
    if (kernels::info(dtype).name == name) return dtype;
  }
  throw core::Error(core::Code::invalid_argument,
                    fmt::format("'{}' is no type that weights can be written in", name))
      .in("--type")
      .hint("f32, f16, bf16; for GGUF also q8_0, q5_1, q5_0, q4_1, q4_0");
}

// Load the tokenizer that came with the weights.
text::Tokenizer load_tokenizer(const model::Checkpoint& checkpoint) {
  if (!checkpoint.vocab && !checkpoint.tokenizer_json) {
    throw Error(Code::not_found, "the model has no tokenizer beside its weights")
        .in(checkpoint.path.string())
        .hint("put the tokenizer.json of the original repository into the folder");
  }
  text::Tokenizer tokenizer = checkpoint.vocab ? text::Tokenizer::from_gguf(*checkpoint.vocab)
                                               : text::Tokenizer::load(*checkpoint.tokenizer_json);
  if (tokenizer.vocab_size() > checkpoint.config.vocab_size) {
    throw Error(Code::corrupt,
                fmt::format("the tokenizer has {} tokens, the model's embedding only {} rows",
                            tokenizer.vocab_size(), checkpoint.config.vocab_size))
        .in(checkpoint.path.string())
        .hint("the tokenizer belongs to another model; take the one from the same repository");
  }
  return tokenizer;
}

}  // namespace rose::app
