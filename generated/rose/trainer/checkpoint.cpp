// Whole or absent, and verified.

#include "rose/trainer/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/hash.h"
#include "rose/core/log.h"
#include "rose/kernels/numerics.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/names.h"
#include "rose/model/files/safetensors.h"
#include "rose/model/files/write_rows.h"

namespace rose::trainer {

namespace {

namespace fs = std::filesystem;
namespace json = core::json;
using core::Code;
using core::Error;

constexpr int state_format = 1;
constexpr const char* weights_file = "model.safetensors";
constexpr const char* moments_file = "optimizer.safetensors";
constexpr const char* state_file = "state.json";

// Name folders, find them again.
constexpr std::string_view step_prefix = "step-";
constexpr std::string_view partial_prefix = ".partial-";

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:08}", step_prefix, step);
}

// The step that a folder's name says, if it is such a name.
std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(step_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [after, failed] = std::from_chars(name.data() + step_prefix.size(), end, step);
  if (failed != std::errc() || after != end) return std::nullopt;
  return step;
}

// All of them, newest first.
std::vector<std::pair<std::int64_t, fs::path>> steps_in(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (const auto step = step_of(entry.path())) found.emplace_back(*step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);  // where a file system cannot, the rename is as durable as it gets
  ::close(descriptor);
}

// A JSON file that knows whether it is whole.
std::string hex(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::string sealed(json::object object) {
  object.erase("checksum");
  const std::string body = json::serialize(object);
  object["checksum"] = hex(core::xxh3(body));
  return core::pretty_json(object) + "\n";
}

json::object read_state_file(const fs::path& checkpoint) {
  const fs::path path = checkpoint / state_file;
  json::value value = core::parse_json(core::read_file(path), path.string());
  json::object object = core::as_object(value, path.string());
  const std::int64_t format = core::get_int(object, "format", path.string());
  if (format != state_format) {
    throw Error(Code::unsupported,
                fmt::format("a state of format {}, this program reads {}", format, state_format))
        .in(path.string());
  }
  const std::string written(core::get_string(object, "checksum", path.string()));
  object.erase("checksum");
  if (hex(core::xxh3(json::serialize(object))) != written) {
    throw Error(Code::corrupt, "the file was changed or damaged: its checksum does not fit")
        .in(path.string())
        .hint("resume from an earlier checkpoint");
  }
  return object;
}

// The files that belong to a checkpoint, with their sizes and, when asked, their checksums.
void require_whole(const fs::path& checkpoint, const json::object& state, bool checksums) {
  for (const auto& [name, entry] : core::get_object(state, "files", state_file)) {
    const fs::path path = checkpoint / std::string_view(name);
    const json::object& expected = core::as_object(entry, path.string());
    std::error_code missing;
    const auto size = fs::file_size(path, missing);
    const bool sized =
        !missing && std::cmp_equal(size, core::get_int(expected, "bytes", path.string()));
    if (sized && (!checksums || hex(core::xxh3(core::MappedFile::open(path).bytes())) ==
                                    core::get_string(expected, "xxh3", path.string())))
      continue;
    throw Error(Code::corrupt, sized ? "the file is damaged: its checksum does not fit"
                                     : "the file is missing or cut short")
        .in(path.string())
        .hint("resume from an earlier checkpoint");
  }
}

}  // namespace

// Copy now, write later.
CheckpointWriter::CheckpointWriter(fs::path folder, ModelFiles model, CheckpointOptions options)
    : folder_(std::move(folder)), model_(std::move(model)), options_(options) {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (!fs::is_directory(folder_)) {
    throw Error(Code::io, fmt::format("cannot create the folder: {}", failed.message()))
        .in(folder_.string());
  }
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().filename().string().starts_with(partial_prefix)) stale.push_back(entry);
  }
  for (const fs::path& path : stale) fs::remove_all(path, failed);
}

CheckpointWriter::~CheckpointWriter() {
  try {
    join();
    if (failure_) std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    core::log(core::LogLevel::error, "{}", error.what());
  }
}

// Wait, snapshot, hand over.
void CheckpointWriter::join() {
  const auto start = std::chrono::steady_clock::now();
  if (thread_.joinable()) thread_.join();
  blocked_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void CheckpointWriter::wait() {
  join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::optional<fs::path> CheckpointWriter::last() const {
  return latest_checkpoint(folder_);
}

void CheckpointWriter::snapshot(Compute& compute) {
  std::size_t i = 0;
  compute.visit([&](const StateTensor& from) {
    if (i == tensors_.size()) tensors_.emplace_back();
    Tensor& to = tensors_[i++];
    to.role = from.role;
    to.name = from.name;
    to.dtype = from.dtype;
    to.shape = from.shape;
    to.bytes.resize(from.bytes);
    from.read(to.bytes);
  });
  tensors_.resize(i);
  extra_ = compute.files();
}

void CheckpointWriter::save(Compute& compute, const RunState& state) {
  wait();
  const auto start = std::chrono::steady_clock::now();
  snapshot(compute);
  blocked_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  thread_ = std::thread([this, state] {
    try {
      write(state);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
  if (!options_.asynchronous) wait();
}

// Write all files, then give the folder its name.
void CheckpointWriter::write(const RunState& state) {
  const fs::path target = folder_ / step_name(state.step);
  const fs::path partial = folder_ / (std::string(partial_prefix) + step_name(state.step));
  std::error_code ignored;
  try {
    fs::remove_all(partial);
    fs::create_directory(partial);
    json::object files;
    const auto add = [&](const char* name, const std::string& hash) {
      files[name] = {{"bytes", fs::file_size(partial / name)}, {"xxh3", hash}};
    };
    const auto add_text = [&](const char* name, const std::string& text) {
      if (text.empty()) return;
      core::write_file_atomic(partial / name, text, options_.durability);
      add(name, hex(core::xxh3(text)));
    };
    json::object config = model::to_hf_config(model_.config);
    config["dtype"] = "float32";
    if (!extra_) add_text("config.json", core::pretty_json(config) + "\n");
    add_text("tokenizer.json", model_.tokenizer_json);
    add_text("tokenizer_config.json", model_.tokenizer_config_json);
    for (const char* name : {weights_file, moments_file}) {
      const bool written = name == weights_file ? write_weights(partial) : write_moments(partial);
      if (written) add(name, hex(core::xxh3(core::MappedFile::open(partial / name).bytes())));
    }
    if (extra_) {
      extra_(partial);
      for (const auto& entry : fs::directory_iterator(partial)) {
        const std::string name = entry.path().filename().string();
        if (!files.contains(name))
          add(name.c_str(), hex(core::xxh3(core::MappedFile::open(entry.path()).bytes())));
      }
    }
    const json::object all{{"format", state_format},     {"numerics", kernels::numerics::version},
                           {"step", state.step},         {"updates", state.updates},
                           {"loader", state.loader},     {"rng", state.rng},
                           {"counters", state.counters}, {"config", state.config},
                           {"files", std::move(files)}};
    core::write_file_atomic(partial / state_file, sealed(all), options_.durability);
    if (fs::exists(target)) {  // the same step again: a run that was resumed
      const fs::path old = folder_ / (std::string(partial_prefix) + "old-" + step_name(state.step));
      fs::rename(target, old);
      fs::rename(partial, target);
      fs::remove_all(old, ignored);
    } else {
      fs::rename(partial, target);
    }
    if (options_.durability == core::Durability::power) sync_folder(folder_);
  } catch (const std::exception& error) {
    fs::remove_all(partial, ignored);
    // Say what is lost and what is not.
    const auto* known = dynamic_cast<const Error*>(&error);
    const auto last = latest_checkpoint(folder_);
    throw Error(known != nullptr ? known->code() : Code::io,
                fmt::format("step {} could not be saved: {}", state.step,
                            known != nullptr ? known->message() : error.what()))
        .in(target.string())
        .hint(last ? fmt::format("{} is complete: make room and resume from it", last->string())
                   : "make room and begin again: nothing had been saved before");
  }
  retire(state.step);
}

// Write the two tensor files.
bool CheckpointWriter::write_weights(const fs::path& folder) const {
  std::map<std::string_view, const Tensor*> weights;
  for (const Tensor& t : tensors_)
    if (t.role == "weight") weights[t.name] = &t;
  std::vector<model::TensorInfo> tensors;
  for (const model::ExpectedTensor& expected : model::expected_tensors(model_.config)) {
    const auto found = weights.find(expected.name);
    if (found == weights.end()) return false;
    const Tensor& t = *found->second;
    tensors.push_back({.name = t.name,
                       .dtype = t.dtype,
                       .shape = expected.shape,
                       .data = t.bytes.data(),
                       .bytes = t.bytes.size(),
                       .owner = nullptr});
  }
  const auto recipes = model::plan(model_.config, tensors, model::place_in_hf);
  std::vector<model::PlannedTensor> planned;
  planned.reserve(recipes.size());
  for (const model::Recipe& recipe : recipes) planned.push_back(recipe.target);
  core::AtomicFile file(folder / weights_file);
  file.write(model::safetensors_header(planned, {{"format", "pt"}}));
  for (const model::Recipe& recipe : recipes)
    model::write_rows(recipe, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit(options_.durability);
  return true;
}

bool CheckpointWriter::write_moments(const fs::path& folder) const {
  const bool whole = fs::exists(folder / weights_file);
  std::vector<model::PlannedTensor> planned;
  std::vector<const Tensor*> kept;
  for (const Tensor& t : tensors_) {
    if (whole && t.role == "weight") continue;
    planned.push_back({.name = t.role + "/" + t.name, .dtype = t.dtype, .shape = t.shape});
    kept.push_back(&t);
  }
  core::AtomicFile file(folder / moments_file);
  file.write(model::safetensors_header(planned));
  for (const Tensor* t : kept) file.write(t->bytes);
  file.commit(options_.durability);
  return true;
}

// Delete what the policy no longer keeps.
void CheckpointWriter::retire(std::int64_t newest) const {
  int kept = 0;
  for (const auto& [step, path] : steps_in(folder_)) {
    const bool for_good = options_.keep_every > 0 && step % options_.keep_every == 0;
    if (options_.keep <= 0 || for_good || step > newest || ++kept <= options_.keep) continue;
    const fs::path doomed = folder_ / fmt::format("{}old-{}", partial_prefix, step_name(step));
    std::error_code failed;  // a checkpoint too many is no reason to end a run
    fs::rename(path, doomed, failed);
    if (!failed) fs::remove_all(doomed, failed);
  }
}

// Verify, compare, then fill.
std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  for (const auto& [step, path] : steps_in(folder)) {
    try {
      require_whole(path, read_state_file(path), false);
      return path;
    } catch (const Error& error) {
      core::log(core::LogLevel::warning, "{} is passed over: {}", path.string(), error.what());
    }
  }
  return std::nullopt;
}

RunState read_run_state(const fs::path& checkpoint) {
  const json::object from = read_state_file(checkpoint);
  const std::string where = (checkpoint / state_file).string();
  const std::int64_t numerics = core::get_int(from, "numerics", where);
  if (numerics != kernels::numerics::version) {
    throw Error(Code::unsupported,
                fmt::format("saved under numerics {}, this program computes by {}: the run could "
                            "not go on with the same bits",
                            numerics, kernels::numerics::version))
        .in(where)
        .hint("start a new run from its weights instead of resuming");
  }
  return {.step = core::get_int(from, "step", where),
          .updates = core::get_int(from, "updates", where),
          .loader = from.at("loader"),
          .rng = from.at("rng"),
          .counters = from.at("counters"),
          .config = std::string(core::get_string(from, "config", where))};
}

RunState load_checkpoint(const fs::path& checkpoint, Compute& compute) {
  RunState state = read_run_state(checkpoint);
  const json::object files = read_state_file(checkpoint);
  require_whole(checkpoint, files, true);
  // Refuse another model.
  const model::SafetensorsFile moments = model::SafetensorsFile::open(checkpoint / moments_file);
  const bool whole = core::get_object(files, "files", state_file).contains(weights_file);
  model::Checkpoint weights;
  if (whole) {
    weights = model::open_checkpoint(checkpoint);
    json::object saved = model::to_hf_config(weights.config);
    json::object mine = model::to_hf_config(compute.weights().config());
    for (const auto& [key, value] : mine) {
      const json::value* was = core::find(saved, key);
      const json::value now = was == nullptr ? json::value() : *was;
      if (json::serialize(now) == json::serialize(value)) continue;
      throw Error(Code::invalid_argument,
                  fmt::format("a checkpoint of another model: {} is {} there and {} here",
                              std::string_view(key), json::serialize(now), json::serialize(value)))
          .in(checkpoint.string())
          .hint("resume with the configuration of the run that saved it");
    }
  }
  // Find every tensor, then write every tensor.
  std::vector<std::span<const std::byte>> found;
  std::set<std::string> used;
  compute.visit([&](const StateTensor& to) {
    const std::string name = to.role + "/" + to.name;
    std::span<const std::byte> bytes;
    std::optional<kernels::DType> dtype;
    if (const model::TensorInfo* t =
            to.role == "weight" && whole ? weights.find(to.name) : nullptr) {
      bytes = {t->data, t->bytes};
      dtype = t->dtype;
    } else if (const model::StoredTensor* stored = moments.find(name)) {
      bytes = stored->bytes;
      dtype = stored->dtype;
      used.insert(name);
    }
    if (dtype != to.dtype || bytes.size() != to.bytes) {
      throw Error(Code::invalid_argument,
                  dtype ? fmt::format("{} has another size or type there", name)
                        : fmt::format("{} is not in the checkpoint", name))
          .in(checkpoint.string())
          .hint("the optimizer or the precision differs from the run that saved it");
    }
    found.push_back(bytes);
  });
  for (const model::StoredTensor& stored : moments.tensors()) {
    if (used.contains(stored.name)) continue;
    throw Error(Code::invalid_argument,
                fmt::format("{} is in the checkpoint, and this run has no use for it", stored.name))
        .in(checkpoint.string())
        .hint("the optimizer or the precision differs from the run that saved it");
  }
  std::size_t i = 0;
  compute.visit([&](const StateTensor& to) { to.write(found[i++]); });
  return state;
}

}  // namespace rose::trainer
