// What the logits oracle asks of us. Numbers travel as raw little-endian files.
//   logits MODEL IDS OUT            logits of every position, one pass: OUT is fp32 [T, V]
//   greedy MODEL IDS N OUT          N tokens chosen greedily through the cache, stop ids ignored: OUT is int32 [N]
//   adapted MODEL ADAPTER IDS OUT   as logits, with an adapter's folder
//   copy MODEL ADAPTER OUT          reads an adapter's folder and writes another
//   counts CONFIG.json              parameters of a configuration
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/model/adapter.h"
#include "rose/model/files/budget.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/config.h"
#include "rose/model/generate.h"
#include "rose/model/packed_weights.h"

namespace {

template <class T>
std::vector<T> read_numbers(const std::string& path) {
  const std::string bytes = rose::core::read_file(path);
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

template <class T>
void write_numbers(const std::string& path, const std::vector<T>& numbers) {
  rose::core::write_file_atomic(
      path, {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)});
}

/// What is packed is unpacked: this is a CPU.
std::shared_ptr<const rose::model::WeightSet> plain_weights(const std::string& model) {
  return rose::model::pack_weights(rose::model::load_weights(rose::model::open_checkpoint(model)),
                                   {});
}

void all_logits(const std::string& model, const std::string& adapter_folder,
                const std::string& ids_file, const std::string& out_file) {
  const auto weights = plain_weights(model);
  rose::model::Adapter adapter;
  std::vector<const rose::model::Adapter*> adapters;
  if (!adapter_folder.empty()) {
    adapter = rose::model::read_adapter(adapter_folder, weights->config());
    adapters.push_back(&adapter);
  }
  const std::vector<std::int32_t> ids = read_numbers<std::int32_t>(ids_file);
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())};
  rose::model::Workspace workspace(weights->config());
  std::vector<float> hidden(ids.size() * static_cast<std::size_t>(weights->config().hidden));
  rose::model::forward(*weights, {ids, positions, offsets, adapters}, nullptr, nullptr, workspace,
                       hidden);
  std::vector<float> out(ids.size() * static_cast<std::size_t>(weights->config().vocab_size));
  rose::model::logits(*weights, hidden, static_cast<std::int64_t>(ids.size()), workspace, out);
  write_numbers(out_file, out);
}

void greedy(const std::string& model, const std::string& ids_file, const std::string& n,
            const std::string& out_file) {
  const auto weights = plain_weights(model);
  const std::vector<std::int32_t> ids = read_numbers<std::int32_t>(ids_file);
  rose::model::Generator generator(weights);
  const rose::model::Generation made =
      generator.generate(ids, {.max_tokens = std::stoll(n), .ignore_stop = true});
  write_numbers(out_file, made.ids);
  std::printf("%lld prompt tokens in %.3f s, %zu tokens in %.3f s\n",
              static_cast<long long>(made.prompt_tokens), made.prefill_seconds, made.ids.size(),
              made.decode_seconds);
}

void copy(const std::string& model, const std::string& from, const std::string& to) {
  const rose::model::Config config = rose::model::open_checkpoint(model).config;
  rose::model::write_adapter(to, config, rose::model::read_adapter(from, config));
}

void counts(const std::string& file) {
  const auto json = rose::core::parse_json(rose::core::read_file(file), file);
  const rose::model::Config config = rose::model::parse_hf_config(json.as_object(), file);
  std::printf("%lld\n", static_cast<long long>(rose::model::parameter_count(config)));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 4 && args[0] == "logits")
      return all_logits(args[1], "", args[2], args[3]), 0;
    if (args.size() == 5 && args[0] == "adapted")
      return all_logits(args[1], args[2], args[3], args[4]), 0;
    if (args.size() == 4 && args[0] == "copy") return copy(args[1], args[2], args[3]), 0;
    if (args.size() == 5 && args[0] == "greedy")
      return greedy(args[1], args[2], args[3], args[4]), 0;
    if (args.size() == 2 && args[0] == "counts") return counts(args[1]), 0;
    std::fprintf(
        stderr,
        "usage: logits_tool logits MODEL IDS OUT | greedy MODEL IDS N OUT | adapted MODEL ADAPTER "
        "IDS OUT | copy MODEL ADAPTER OUT | counts CONFIG.json\n");
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", rose::core::describe(error).c_str());
    return rose::core::exit_code(error);
  }
}
