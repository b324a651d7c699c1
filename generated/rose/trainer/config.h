// Say what a run is.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/model/files/config.h"
#include "rose/trainer/loop.h"
#include "rose/trainer/preference.h"

namespace rose::trainer {

// The sections of the file.
struct ModelConfig {
  std::string from{};  ///< a checkpoint to go on from; empty: fresh weights of `shape`
  model::Config
      shape{};  ///< of a fresh model; vocab_size 0: the tokenizer's, rounded up to a multiple of 64
};

struct TokenizerConfig {
  std::string from{};                  ///< tokenizer.json, GGUF or model folder; empty: the model's
  std::int64_t vocabulary = 0;         ///< above 0: learn one of this size from data.text
  std::vector<std::string> special{};  ///< tokens of a learnt one beside <|endoftext|>
};

struct DataConfig {
  std::vector<std::string> text{};   ///< files or folders of text, tokenised when the run begins
  std::vector<std::string> train{};  ///< token shards, each PATH or PATH@WEIGHT
  std::vector<std::string> validation{};  ///< token shards of another text
  double held_out = 0.05;                 ///< part of data.text kept for validation
  std::string packing = "concatenate";    ///< concatenate, best_fit
  bool shuffle = true;
};

struct BatchConfig {
  std::int64_t context = 128;  ///< tokens of a row
  std::int64_t rows = 8;       ///< of a micro-batch
  std::int64_t tokens = 1024;  ///< of a step
  std::int64_t grad_groups =
      0;  ///< runs of micro-batches whose gradients are added by a tree; 0: one for each process
};

/// How often, in steps; 0: never.
struct EveryConfig {
  std::int64_t log = 1, validate = 100, sample = 0, checkpoint = 500;
  std::int64_t keep = 2;  ///< checkpoints that stay, beside the best and the last
  std::int64_t validation_batches = 8;
};

struct SampleConfig {
  std::string prompt{};
  std::int64_t tokens = 64;
  double temperature = 0.8;
};

/// Conversations, and how they are read.
struct ChatConfig {
  std::vector<std::string> files{};  ///< JSON lines of conversations
  std::string form{};                ///< template: chatml, plain, a file; empty: the model's
  std::string too_long = "refuse";   ///< refuse, cut, skip
};

/// Which matrices get an adapter, and of which size. Rank 0: none, all weights are trained.
struct LoraConfig {
  std::int64_t rank = 0;
  float alpha = 16.0f;   ///< the change is multiplied by alpha / rank
  float dropout = 0.0f;  ///< share of an adapter's inputs that is left out while it is trained
  std::vector<std::string> targets{"q", "k", "v", "o", "gate", "up", "down"};
};

/// Everything that decides a run. The defaults are those of a small run on a CPU.
struct TrainConfig {
  std::string name = "run";
  std::string task = "pretrain";  ///< what is learnt, and from what
  ChatConfig chat{};
  LoraConfig lora{};
  PreferenceOptions preference{};
  std::vector<std::string> preference_files{};  ///< JSON lines of pairs, or of single answers
  std::string reference{};  ///< a model; empty: the one that training begins with
  std::string out{};        ///< folder of the run; empty: runs/NAME
  std::uint64_t seed = 1;
  std::int64_t steps = 1000;
  std::string device = "auto";     ///< auto, cpu, gpu; "cuda" is the GPU too
  std::string precision = "fp32";  ///< fp32, tf32, bf16, fp16
  std::string recompute = "auto";  ///< activations taken again: auto, none, selective, blocks
  std::int64_t threads = 0;        ///< of the CPU; 0: all
  double peak_flops = 0.0;         ///< of the machine, for MFU; 0: what the device says
  ModelConfig model{};
  TokenizerConfig tokenizer{};
  DataConfig data{};
  BatchConfig batch{};
  float z_loss = 0.0f;
  OptimizerOptions optimizer{};
  double clip = 1.0;  ///< largest gradient norm; 0 does not clip
  RateSchedule rate{};
  WatchOptions watch{};
  EveryConfig every{};
  SampleConfig sample{};

  std::filesystem::path folder() const {
    return out.empty() ? std::filesystem::path("runs") / name : std::filesystem::path(out);
  }
  std::int64_t tokens_per_micro_batch() const { return batch.rows * batch.context; }
  std::int64_t micro_batches() const { return batch.tokens / tokens_per_micro_batch(); }
};

// Read, override, check, write back.

/// One entry of the table: a key such as "optimizer.beta1", and the value it stands for.
struct ConfigKey {
  std::string name, help;
  std::function<void(const std::string& value)> set;  ///< throws core::Error (invalid_argument)
  std::function<std::string()> get;                   ///< as YAML
};

/// All keys, in the order of the file; they refer to `config`.
std::vector<ConfigKey> config_keys(TrainConfig& config);

/// A file, then KEY=VALUE overrides in their order. Throws core::Error: an unknown key with the nearest one, a value of
/// another type, a line of the file that is not YAML.
TrainConfig read_config(const std::filesystem::path& file,
                        const std::vector<std::string>& overrides = {});
TrainConfig parse_config(std::string_view yaml, std::string_view where,
                         const std::vector<std::string>& overrides = {});

/// The resolved file: every key with its value and what it means. Reading it gives the same configuration.
std::string to_yaml(const TrainConfig& config);

/// Throws core::Error (invalid_argument) naming the first value that cannot be, and what would fit.
void check(const TrainConfig& config);

/// The known name that is fewest single-letter edits away.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace rose::trainer
