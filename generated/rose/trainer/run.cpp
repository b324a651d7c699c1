// The run.

#include "rose/trainer/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <new>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/progress.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/model/generate.h"
#include "rose/trainer/checkpoint.h"
#include "rose/trainer/loop.h"
#include "rose/trainer/metrics.h"
#include "rose/trainer/plot.h"
#include "rose/trainer/prepare_run.h"
#include "rose/trainer/task.h"

namespace rose::trainer {

namespace fs = std::filesystem;
using core::Code;
using core::Error;

namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// All that a run holds.
class Run {
 public:
  Run(const TrainConfig& config, bool resume, const RunHooks& hooks, core::ThreadPool& pool);
  RunResult go();

 private:
  bool first() const { return hooks_.team == nullptr || hooks_.team->rank() == 0; }
  void say(const std::string& line) const {
    if (hooks_.say && first()) hooks_.say(line);
  }
  void after_step(const StepReport& report, double seconds, core::Progress& progress);
  void validate();
  void sample();
  void draw() const;
  void save();
  bool due(std::int64_t every, std::int64_t step) const {
    return every > 0 && (step % every == 0 || step == config_.steps);
  }

  TrainConfig config_;
  RunHooks hooks_;
  core::ThreadPool& pool_;
  fs::path folder_;
  std::optional<text::Tokenizer> tokenizer_;
  std::unique_ptr<Task> task_;
  model::Config shape_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<MetricsLog> log_;
  RunResult result_;
};

// Say what to lower when memory runs out.
template <class Function>
auto in_memory(const TrainConfig& config, const Function& function) {
  const auto refuse = [&](std::string_view device_says) {
    const std::int64_t half = std::max<std::int64_t>(1, config.batch.rows / 2);
    throw Error(Code::resource_exhausted,
                fmt::format("there is not enough memory for a step{}", device_says))
        .in("batch.rows")
        .hint(config.batch.rows > 1
                  ? fmt::format("batch.rows={} halves the activations; a step keeps its {} tokens",
                                half, config.batch.tokens)
                  : "recompute=blocks keeps fewer activations; else shorten batch.context");
  };
  try {
    return function();
  } catch (const std::bad_alloc&) {
    refuse("");
    throw;
  } catch (const Error& error) {
    if (error.code() == Code::resource_exhausted && error.argument() != "batch.rows")
      refuse(fmt::format(": {}", error.message()));
    throw;
  }
}

// Prepare, and go on where a checkpoint is.
void check_memory(const TrainConfig& config, const model::Config& shape, std::int64_t parameters) {
  const bool accumulates = config.micro_batches() > 1;
  const auto needed = [&](std::int64_t rows) {
    return cpu_training_bytes(shape, parameters, rows * config.batch.context, accumulates);
  };
  const double there =
      static_cast<double>(sysconf(_SC_PAGESIZE)) * static_cast<double>(sysconf(_SC_PHYS_PAGES));
  if (needed(config.batch.rows) <= there) return;
  std::int64_t rows = config.batch.rows;
  while (rows > 0 &&
         (needed(rows) > there || config.batch.tokens % (rows * config.batch.context) != 0))
    --rows;
  throw Error(Code::resource_exhausted,
              fmt::format("this run needs about {:.1f} GB of memory, and there are {:.1f}",
                          needed(config.batch.rows) / 1e9, there / 1e9))
      .in("batch.rows")
      .hint(rows > 0 ? fmt::format("batch.rows={} would fit; a step keeps its {} tokens", rows,
                                   config.batch.tokens)
                     : "the weights and moments alone do not fit: train a smaller model");
}

Run::Run(const TrainConfig& config, bool resume, const RunHooks& hooks, core::ThreadPool& pool)
    : config_(config), hooks_(hooks), pool_(pool), folder_(config.folder()) {
  if (!first()) hooks_.team->wait();  // until the first has made everything ready
  const std::optional<fs::path> last = latest_checkpoint(folder_ / "checkpoints");
  if (first() && !resume && (last || fs::exists(folder_ / "metrics.jsonl")))
    throw Error(Code::invalid_argument, "this folder already holds a run")
        .in(folder_.string())
        .hint(fmt::format("go on with it: rose train --resume {}; or choose another name or out",
                          folder_.string()));
  fs::create_directories(folder_);
  tokenizer_ = prepare_tokenizer(config_, folder_);
  const auto weights = prepare_weights(config_, tokenizer_, stops_of(config_, folder_, tokenizer_));
  shape_ = weights->config();
  task_ = make_task(config_, folder_, tokenizer_, shape_);
  if (config_.device == "cpu" || !kernels::gpu::available())
    check_memory(config_, shape_, weights->parameter_count());
  compute_ =
      in_memory(config_, [&] { return task_->objective(device_of(config_, weights, pool_)); });
  if (hooks_.team != nullptr) compute_ = hooks_.team->share(std::move(compute_), config_);
  // The loop, from the beginning or from a checkpoint.
  LoopOptions loop{.rows = config_.batch.rows,
                   .context = config_.batch.context,
                   .micro_batches = config_.micro_batches()};
  loop.clip = config_.clip, loop.rate = config_.rate, loop.watch = config_.watch;
  loop_ = std::make_unique<Loop>(
      *compute_, [this](std::int64_t, std::int64_t, MicroBatchBuffer& out) { task_->next(out); },
      loop);
  std::int64_t step = 0;
  if (last) {
    const RunState state = load_checkpoint(*last, *compute_);
    loop_->restore(LoopState::from_json(state.counters.as_object(), last->string()));
    task_->restore(state.loader);
    step = state.step;
    say(fmt::format("going on from {}", last->string()));
  }
  result_.step = step;
  if (last) result_.checkpoint = *last;
  // What is written: checkpoints, metrics, the configuration.
  if (!first()) return;
  ModelFiles files{.config = shape_};
  if (tokenizer_) files.tokenizer_json = core::read_file(folder_ / "tokenizer.json");
  if (fs::exists(folder_ / "tokenizer_config.json"))
    files.tokenizer_config_json = core::read_file(folder_ / "tokenizer_config.json");
  checkpoints_ = std::make_unique<CheckpointWriter>(
      folder_ / "checkpoints", files,
      CheckpointOptions{.keep = static_cast<int>(config_.every.keep)});
  core::write_file_atomic(folder_ / "config.yaml", to_yaml(config_));
  log_ = std::make_unique<MetricsLog>(folder_, step, wall_time());
  if (!task_->description().empty()) say(task_->description());
  say(fmt::format("{}: {:.2f} million weights, {} steps of {} tokens on {}, into {}", config_.name,
                  static_cast<double>(weights->parameter_count()) / 1e6, config_.steps,
                  config_.batch.tokens, compute_->device().name, folder_.string()));
  if (hooks_.team != nullptr) hooks_.team->wait();
}

// Step, write down, look, save.
RunResult Run::go() {
  {
    core::Progress progress(
        "training", config_.steps * config_.batch.tokens, "tokens", stderr,
        hooks_.progress && first() ? core::Progress::Style::detect : core::Progress::Style::none);
    while (result_.step < config_.steps && !result_.interrupted) {
      const auto start = std::chrono::steady_clock::now();
      const StepReport report = in_memory(config_, [&] { return loop_->step(); });
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (result_.seconds == 0.0) result_.first_loss = report.sum.mean();
      result_.seconds += seconds;
      result_.step = report.step, result_.loss = report.sum.mean();
      if (first()) after_step(report, seconds, progress);
      const bool asked = hooks_.interrupted && hooks_.interrupted();
      result_.interrupted = hooks_.team == nullptr ? asked : hooks_.team->any(asked);
    }
  }
  if (!first()) return result_;
  if (result_.checkpoint.filename() != fmt::format("step-{:08}", result_.step)) save();
  checkpoints_->wait();
  if (const auto last = checkpoints_->last()) result_.checkpoint = *last;
  draw();
  if (result_.interrupted && result_.step < config_.steps)
    say(fmt::format(
        "stopped after step {}; everything is saved. Go on with: rose train --resume {}",
        result_.step, folder_.string()));
  return result_;
}

void Run::after_step(const StepReport& report, double seconds, core::Progress& progress) {
  const double rate = static_cast<double>(config_.batch.tokens) / seconds;
  const DeviceInfo device = compute_->device();
  const double peak = config_.peak_flops > 0 ? config_.peak_flops : device.peak_flops;
  const double mfu = peak > 0 ? rate * flops_per_token(shape_, config_.batch.context) / peak : 0.0;
  std::string note = fmt::format("step {} loss {:.3f} rate {:.2e} norm {:.2f}", report.step,
                                 report.sum.mean(), report.rate, report.gradient_norm);
  if (mfu > 0) note += fmt::format(" MFU {:.0f} %", 100 * mfu);
  note += fmt::format(" {:.1f} GB", static_cast<double>(device.memory_used) / 1e9);
  progress.update(report.step * config_.batch.tokens, note);
  if (report.skipped)
    say(fmt::format("step {} was left out: loss {:.4g}, gradient norm {:.4g}", report.step,
                    report.sum.mean(), report.gradient_norm));
  else if (report.spike)
    say(fmt::format(
        "step {} stands out: loss {:.4g} ({:.1f} deviations), gradient norm {:.4g} ({:.1f})",
        report.step, report.sum.mean(), report.loss_z, report.gradient_norm, report.norm_z));
  if (due(config_.every.log, report.step) || report.step == 1) {
    MetricLine line{.step = report.step};
    line.values = {{"tokens", static_cast<double>(loop_->state().tokens)},
                   {"loss", report.sum.mean()},
                   {"rate", report.rate},
                   {"gradient_norm", report.gradient_norm}};
    if (config_.z_loss > 0)
      line.values.emplace_back("z", report.sum.weight > 0 ? report.sum.z / report.sum.weight : 0.0);
    if (report.skipped) line.values.emplace_back("skipped", 1.0);
    for (const auto& [name, value] : task_->numbers()) line.values.emplace_back(name, value);
    line.timing = {{"seconds", seconds},
                   {"tokens_per_second", rate},
                   {"memory_bytes", static_cast<double>(device.memory_used)},
                   {"stalled_seconds", task_->stalled_seconds()}};
    if (mfu > 0) line.timing.emplace_back("mfu", mfu);
    log_->write(line, wall_time());
  }
  if (due(config_.every.validate, report.step)) validate();
  if (due(config_.every.sample, report.step)) sample();
  if (config_.every.checkpoint > 0 && report.step % config_.every.checkpoint == 0) save();
}

// Validate, sample, draw.
void Run::validate() {
  const LossSum sum = task_->validate(*compute_);
  if (sum.tokens == 0) return;
  result_.validation_loss = sum.mean();
  if (task_->bytes_per_token() > 0)
    result_.bits_per_byte = sum.mean() / std::log(2.0) / task_->bytes_per_token();
  MetricLine line{.step = result_.step, .values = {{"validation_loss", sum.mean()}}};
  if (result_.bits_per_byte > 0) line.values.emplace_back("bits_per_byte", result_.bits_per_byte);
  for (const auto& [name, value] : task_->numbers())
    line.values.emplace_back("validation_" + name, value);
  log_->write(line, wall_time());
  say(fmt::format("step {}: validation loss {:.4f}{}", result_.step, sum.mean(),
                  result_.bits_per_byte > 0
                      ? fmt::format(", {:.3f} bits per byte", result_.bits_per_byte)
                      : ""));
  draw();
}

void Run::sample() {
  if (!tokenizer_) return;
  const std::vector<std::int32_t> prompt = task_->prompt(config_.sample.prompt);
  const std::shared_ptr<const model::WeightSet> weights(std::shared_ptr<const void>(),
                                                        &compute_->weights());
  const std::int64_t room = std::min<std::int64_t>(
      shape_.max_positions, static_cast<std::int64_t>(prompt.size()) + config_.sample.tokens);
  model::Generator generator(weights, room, pool_);
  model::GenerateOptions options;
  options.max_tokens = config_.sample.tokens;
  options.sampling.temperature = static_cast<float>(config_.sample.temperature);
  options.sampling.seed = config_.seed;
  std::vector<std::int32_t> ids = generator.generate(prompt, options).ids;
  std::erase_if(ids, [&](std::int32_t id) { return id >= tokenizer_->vocab_size(); });
  const std::string text = tokenizer_->decode(ids, true);
  std::ofstream(folder_ / "samples.txt", std::ios::app)
      << fmt::format("--- step {}\n{}{}\n", result_.step, config_.sample.prompt, text);
  say(fmt::format("step {}: {}{}", result_.step, config_.sample.prompt, text));
}

void Run::draw() const {
  const fs::path metrics = folder_ / "metrics.jsonl";
  core::write_file_atomic(folder_ / "loss.svg",
                          plot_losses(config_.name, read_metric(metrics, "loss"),
                                      read_metric(metrics, "validation_loss")));
}

// Save, and say what stays when it cannot be.
void Run::save() {
  const LoopState loop = loop_->state();
  RunState state{.step = loop.step, .updates = loop.updates};
  state.loader = task_->position();
  state.counters = loop.to_json();
  state.config = to_yaml(config_);
  try {
    checkpoints_->save(*compute_, state);
  } catch (const Error& error) {
    const auto last = checkpoints_->last();
    throw Error(error.code(), fmt::format("the checkpoint of step {} could not be written: {}",
                                          loop.step, error.message()))
        .in(error.argument())
        .hint(last ? fmt::format("{} is complete; make room, then: rose train --resume {}",
                                 last->string(), folder_.string())
                   : "make room, or choose another folder with out");
  }
}

}  // namespace

// Train, from the command line's point of view.
TrainConfig config_of_run(const fs::path& folder, const std::vector<std::string>& overrides) {
  if (!fs::exists(folder / "config.yaml"))
    throw Error(Code::not_found, "there is no run in this folder")
        .in(folder.string())
        .hint("a run's folder holds config.yaml and checkpoints");
  TrainConfig config = read_config(folder / "config.yaml", overrides);
  config.out = folder.string();
  return config;
}

RunResult train(const TrainConfig& config, bool resume, const RunHooks& hooks,
                core::ThreadPool& pool) {
  return Run(config, resume, hooks, pool).go();
}

}  // namespace rose::trainer
