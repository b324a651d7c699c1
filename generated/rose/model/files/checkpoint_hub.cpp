// Find models on this machine.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/checkpoint_parts.h"

namespace rose::model {

using core::Code;
using core::Error;
namespace fs = std::filesystem;

// Follow a hub cache folder to its current snapshot.
namespace {

std::string trimmed(std::string text) {
  const auto last = text.find_last_not_of(" \t\r\n");
  text.erase(last == std::string::npos ? 0 : last + 1);
  return text;
}

/// `models--org--name` holds `refs/main`, whose content names a folder under `snapshots`.
fs::path snapshot_of(const fs::path& repository) {
  const fs::path ref = repository / "refs" / "main";
  if (fs::exists(ref)) {
    const std::string revision = trimmed(core::read_file(ref, 4096));
    const bool plain = !revision.empty() && revision.find_first_of("/\\") == std::string::npos &&
                       !revision.starts_with('.');
    if (plain && fs::is_directory(repository / "snapshots" / revision)) {
      return repository / "snapshots" / revision;
    }
  }
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(repository / "snapshots", ignored)) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  if (found.size() == 1) return found.front();
  throw Error(Code::not_found, found.empty() ? "the hub cache folder holds no snapshot"
                                             : "the hub cache folder holds several snapshots and "
                                               "does not say which is current")
      .in(repository.string())
      .hint("name the folder under snapshots/ that you mean");
}

std::optional<std::string> repository_name(const fs::path& folder) {
  constexpr std::string_view prefix = "models--";
  std::string name = folder.filename().string();
  if (!name.starts_with(prefix)) return std::nullopt;
  name.erase(0, prefix.size());
  for (std::size_t at = name.find("--"); at != std::string::npos; at = name.find("--", at)) {
    name.replace(at, 2, "/");
  }
  return name;
}

}  // namespace

// Decide what a path means.
fs::path resolve_checkpoint(const fs::path& given) {
  std::error_code failed;
  const fs::file_status status = fs::status(given, failed);
  if (!fs::exists(status)) {
    throw Error(Code::not_found, "there is no such file or folder")
        .in(given.string())
        .hint("`rose models` lists what is found on this machine");
  }
  if (!fs::is_directory(status)) return given;
  fs::path folder = given.filename().empty() ? given.parent_path() : given;
  if (repository_name(folder) && fs::exists(folder / "snapshots")) return snapshot_of(folder);
  if (fs::exists(folder / "config.json")) return folder;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  if (files.size() > 1) {
    throw Error(Code::invalid_argument, fmt::format("the folder holds {} GGUF files", files.size()))
        .in(folder.string())
        .hint("name one of them");
  }
  return files.empty() ? folder : files.front();
}

std::string checkpoint_name(const fs::path& given) {
  const fs::path path = given.filename().empty() ? given.parent_path() : given;
  if (const auto name = repository_name(path)) return *name;
  if (path.parent_path().filename() == "snapshots") {
    if (const auto name = repository_name(path.parent_path().parent_path())) return *name;
  }
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

// Look through the hub cache.
fs::path hub_cache_folder() {
  if (const char* cache = std::getenv("HF_HUB_CACHE"); cache && *cache) return cache;
  if (const char* home = std::getenv("HF_HOME"); home && *home) return fs::path(home) / "hub";
  const char* home = std::getenv("HOME");
  return fs::path(home ? home : ".") / ".cache" / "huggingface" / "hub";
}

std::optional<fs::path> find_in_hub_cache(std::string_view repository) {
  std::string folder = "models--";
  for (const char c : repository) folder += c == '/' ? std::string("--") : std::string(1, c);
  const fs::path path = hub_cache_folder() / folder;
  std::error_code failed;
  if (repository.find("..") != std::string_view::npos || !fs::is_directory(path, failed)) {
    return std::nullopt;
  }
  return path;
}

std::vector<std::pair<std::string, fs::path>> list_hub_cache() {
  std::vector<std::pair<std::string, fs::path>> out;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(hub_cache_folder(), failed)) {
    const auto name = repository_name(entry.path());
    if (!name || !entry.is_directory(failed)) continue;
    try {
      const fs::path snapshot = snapshot_of(entry.path());
      if (fs::exists(snapshot / "config.json")) out.emplace_back(*name, snapshot);
    } catch (const Error&) {  // a half-downloaded repository is not worth failing a listing
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Read a GGUF file's tokenizer.
std::optional<text::GgufVocab> vocab_in_gguf(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  const auto* tokens = file.texts(prefix + "tokens");
  if (tokens == nullptr) return std::nullopt;
  text::GgufVocab vocab;
  vocab.model = file.text(prefix + "model").value_or("");
  vocab.pre = file.text(prefix + "pre").value_or("");
  vocab.tokens = *tokens;
  if (const auto* merges = file.texts(prefix + "merges")) vocab.merges = *merges;
  for (const std::int64_t type :
       file.integers(prefix + "token_type").value_or(std::vector<std::int64_t>{})) {
    vocab.types.push_back(static_cast<std::int32_t>(type));
  }
  if (!vocab.types.empty() && vocab.types.size() != vocab.tokens.size()) {
    throw Error(Code::corrupt, fmt::format("the tokenizer has {} tokens and {} token types",
                                           vocab.tokens.size(), vocab.types.size()))
        .in(file.where());
  }
  const auto id = [&](std::string_view which) -> std::optional<std::int32_t> {
    const auto value = file.integer(fmt::format("{}{}_token_id", prefix, which));
    if (!value) return std::nullopt;
    if (*value < 0 || static_cast<std::uint64_t>(*value) >= vocab.tokens.size())
      return std::nullopt;
    return static_cast<std::int32_t>(*value);
  };
  vocab.bos = id("bos");
  vocab.eos = id("eos");
  vocab.unk = id("unknown");
  vocab.pad = id("padding");
  vocab.add_bos = file.boolean(prefix + "add_bos_token");
  vocab.add_eos = file.boolean(prefix + "add_eos_token");
  vocab.add_space_prefix = file.boolean(prefix + "add_space_prefix").value_or(false);
  vocab.chat_template = file.text("tokenizer.chat_template").value_or("");
  return vocab;
}

GgufMetadata gguf_vocab(const text::GgufVocab& vocab) {
  const std::string prefix = "tokenizer.ggml.";
  GgufMetadata out;
  if (!vocab.tokens.empty()) {
    out.emplace_back(prefix + "model", vocab.model);
    out.emplace_back(prefix + "pre", vocab.pre);
    out.emplace_back(prefix + "tokens", GgufArray{vocab.tokens});
    if (!vocab.types.empty()) out.emplace_back(prefix + "token_type", GgufArray{vocab.types});
    out.emplace_back(prefix + "merges", GgufArray{vocab.merges});
    out.emplace_back(prefix + "add_space_prefix", vocab.add_space_prefix);
  }
  const auto id = [&](std::string_view which, std::optional<std::int32_t> value) {
    if (value) {
      out.emplace_back(fmt::format("{}{}_token_id", prefix, which),
                       static_cast<std::uint32_t>(*value));
    }
  };
  id("bos", vocab.bos);
  id("eos", vocab.eos);
  id("unknown", vocab.unk);
  id("padding", vocab.pad);
  if (vocab.add_bos) out.emplace_back(prefix + "add_bos_token", *vocab.add_bos);
  if (vocab.add_eos) out.emplace_back(prefix + "add_eos_token", *vocab.add_eos);
  if (!vocab.chat_template.empty())
    out.emplace_back("tokenizer.chat_template", vocab.chat_template);
  return out;
}

}  // namespace rose::model
