// Choose the task and the device.

#include "rose/trainer/task.h"

#include <algorithm>

#include "rose/trainer/data/prefetch.h"
#include "rose/trainer/make_compute.h"
#include "rose/trainer/prepare_run.h"

#include "rose/core/error.h"
#include "rose/trainer/chat_task.h"
#include "rose/trainer/config.h"
#include "rose/trainer/gpu_lora_compute.h"
#include "rose/trainer/lora_compute.h"
#include "rose/trainer/preference_task.h"

namespace rose::trainer {

namespace {

// Continue text.
class TextTask final : public Task {
 public:
  TextTask(const TrainConfig& config, const std::filesystem::path& folder,
           const std::optional<text::Tokenizer>& tokenizer, std::int64_t vocabulary)
      : config_(config),
        tokenizer_(tokenizer),
        vocabulary_(vocabulary),
        data_(prepare_data(config, folder, tokenizer)),
        source_(Loader(options(data_.train, config.data.shuffle)), config.batch.rows,
                config.batch.context) {}

  void next(MicroBatchBuffer& out) override { source_.next(out); }
  core::json::value position() const override { return source_.position(); }
  void restore(const core::json::value& position) override { source_.restore(position); }
  double bytes_per_token() const override { return data_.bytes_per_token; }
  double stalled_seconds() const override { return source_.stalled_seconds(); }
  LossSum validate(Compute& compute) override;
  std::vector<std::int32_t> prompt(const std::string& text) const override {
    if (!tokenizer_) return {};
    std::vector<std::int32_t> ids = tokenizer_->encode(text, false);
    if (ids.empty()) ids.push_back(tokenizer_->eos().value_or(0));
    return ids;
  }

 private:
  LoaderOptions options(const std::vector<DataSource>& sources, bool shuffle) const;

  TrainConfig config_;
  std::optional<text::Tokenizer> tokenizer_;
  std::int64_t vocabulary_;
  PreparedData data_;
  Prefetcher source_;
};

LoaderOptions TextTask::options(const std::vector<DataSource>& sources, bool shuffle) const {
  LoaderOptions options;
  options.sources = sources;
  options.seed = config_.seed;
  options.shuffle = shuffle;
  options.packing = config_.data.packing == "best_fit" ? Packing::best_fit : Packing::concatenate;
  options.vocab_size = static_cast<std::int32_t>(vocabulary_);
  options.separator = data_.separator;
  return options;
}

LossSum TextTask::validate(Compute& compute) {
  LossSum sum;
  if (data_.validation.empty()) return sum;
  Loader loader(options(data_.validation, false));
  const std::int64_t cells = loader.cells() / config_.tokens_per_micro_batch();
  const std::int64_t batches =
      std::max<std::int64_t>(1, std::min(config_.every.validation_batches, cells));
  MicroBatchBuffer batch;
  for (std::int64_t b = 0; b < batches; ++b) {
    loader.next(config_.batch.rows, config_.batch.context, batch);
    sum += compute.evaluate(batch.view());
  }
  return sum;
}

}  // namespace

// Choose what is learnt, and what is trained.
std::unique_ptr<Task> make_task(const TrainConfig& config, const std::filesystem::path& folder,
                                const std::optional<text::Tokenizer>& tokenizer,
                                const model::Config& shape) {
  // Choose what is learnt.
  if (config.task == "sft") return std::make_unique<ChatTask>(config, folder, tokenizer);
  if (config.task == "preference")
    return std::make_unique<PreferenceTask>(config, folder, tokenizer);
  return std::make_unique<TextTask>(config, folder, tokenizer, shape.vocab_size);
}

std::vector<std::int32_t> stops_of(const TrainConfig& config, const std::filesystem::path& folder,
                                   const std::optional<text::Tokenizer>& tokenizer) {
  if (config.task == "pretrain") return {};
  const std::optional<std::int32_t> end = encoder_of(folder, tokenizer).end_of_answer();
  return end ? std::vector{*end} : std::vector<std::int32_t>();
}

namespace {

/// On a GPU where there is one, unless the configuration says otherwise.
std::unique_ptr<Compute> lora_device(const TrainConfig& config,
                                     std::shared_ptr<model::WeightSet> weights,
                                     const ComputeOptions& options, core::ThreadPool& pool) {
  const DeviceChoice choice{config.device, config.precision, config.recompute,
                            config.tokens_per_micro_batch()};
  const model::AdapterOptions adapter = adapter_options(config.lora);
  if (on_gpu(choice))
    return std::make_unique<GpuLoraCompute>(std::move(weights), options, adapter, config.seed,
                                            config.lora.dropout, gpu_options(choice));
  check_cpu(choice);
  auto compute =
      std::make_unique<LoraCompute>(std::move(weights), options, adapter, config.seed, pool);
  compute->set_dropout(config.lora.dropout);
  return compute;
}

}  // namespace

std::unique_ptr<Compute> device_of(const TrainConfig& config,
                                   std::shared_ptr<model::WeightSet> weights,
                                   core::ThreadPool& pool) {
  ComputeOptions options;
  options.optimizer = config.optimizer, options.z_loss = config.z_loss;
  if (config.lora.rank > 0) return lora_device(config, std::move(weights), options, pool);
  return make_compute(
      std::move(weights), options,
      {config.device, config.precision, config.recompute, config.tokens_per_micro_batch()}, pool);
}

}  // namespace rose::trainer
