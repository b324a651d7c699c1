// Train from a configuration, go on with a run, or show the demonstration.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include <algorithm>
#include <span>
#include <thread>
#include "rose/app/engine_commands.h"
#include "rose/app/engine_options.h"
#include "rose/app/models.h"
#include "rose/core/error.h"
#include "rose/trainer/demo.h"
#include "rose/trainer/run.h"

#include "rose/core/hash.h"
#include "rose/dist/group.h"
#include "rose/dist/world.h"
#include "rose/trainer/data_parallel.h"

namespace rose::app {

namespace {

// Turn what is left of the command line into overrides.

/// "--KEY=VALUE" and "--KEY VALUE" become KEY=VALUE.
std::vector<std::string> dotted(const std::vector<std::string>& rest) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (!rest[i].starts_with("--")) {
      throw core::Error(core::Code::invalid_argument, "this is neither an option nor a key")
          .in(rest[i])
          .hint("a key of the configuration is overridden by --set KEY=VALUE or --KEY VALUE");
    }
    const std::string key = rest[i].substr(2);
    if (key.find('=') != std::string::npos) {
      out.push_back(key);
    } else if (i + 1 < rest.size()) {
      out.push_back(key + "=" + rest[++i]);
    } else {
      throw core::Error(core::Code::invalid_argument, "this key has no value").in(rest[i]);
    }
  }
  return out;
}

// Run, alone or with others, with a bar and a Ctrl-C that saves.

// Say how to talk to what was trained.
std::string how_to_talk(const trainer::TrainConfig& config, const std::string& checkpoint) {
  const char* command = config.task == "pretrain" ? "generate" : "chat";
  if (config.lora.rank > 0)
    return fmt::format("rose {} --model {} --adapter {} \"…\"", command, config.model.from,
                       checkpoint);
  return fmt::format("rose {} --model {} \"…\"", command, checkpoint);
}

void run_configuration(trainer::TrainConfig config, bool resume) {
  catch_interrupts();
  for (std::string* name : {&config.model.from, &config.tokenizer.from}) {
    if (!name->empty()) *name = find_model(*name).string();
  }
  const dist::World world = dist::world_from_environment();
  dist::TcpOptions meeting;
  const std::string settings = trainer::to_yaml(config);
  meeting.agreement = fmt::format("rose {}, configuration {:016x}", ROSE_VERSION,
                                  core::xxh3(std::as_bytes(std::span(settings))));
  dist::TcpWire wire(world, meeting);
  dist::Group group(wire);
  trainer::DataParallelTeam team(group);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const auto threads = static_cast<int>(config.threads);
  std::optional<core::ThreadPool> own;
  if (threads > 0 || world.local_size > 1)
    own.emplace(threads > 0 ? threads : std::max(1, cores / world.local_size));
  trainer::RunHooks hooks;
  hooks.progress = true;
  hooks.interrupted = [] { return take_interrupt(); };
  hooks.say = [](std::string_view line) { print(fmt::format("{}\n", line)); };
  if (world.size > 1 || config.batch.grad_groups > 1) hooks.team = &team;
  const auto run = [&] {
    try {
      return trainer::train(config, resume, hooks, own ? *own : core::default_pool());
    } catch (const core::Error& error) {
      wire.abort(error);  // so that the others leave, too, with the same status
      throw;
    }
  };
  const trainer::RunResult result = run();
  if (result.interrupted && result.step < config.steps)
    throw core::Error(core::Code::cancelled, "interrupted");
  if (world.rank != 0) return;
  const std::string there = result.checkpoint.string();
  print(fmt::format("done: loss {:.3f}{}\nthe model: {}\ntalk to it: {}\n", result.loss,
                    result.validation_loss > 0
                        ? fmt::format(", {:.3f} on held-out text", result.validation_loss)
                        : "",
                    there, how_to_talk(config, there)));
}

}  // namespace

// The options of rose train.
void add_train(CLI::App& app) {
  struct Options {
    trainer::DemoOptions demo;
    bool show_demo = false;
    std::string config, resume;
    std::vector<std::string> set;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->add_option("--config", o->config, "A configuration (YAML); configs/ holds ready ones");
  command->add_option("--resume", o->resume, "Go on with the run in this folder");
  command->add_option("--set", o->set, "KEY=VALUE: override the configuration; also --KEY VALUE")
      ->allow_extra_args(false);
  command->add_flag("--demo", o->show_demo,
                    "Train the tiny transformer of the chapter \"A first training run\"");
  command->add_option("--text", o->demo.text, "demo: a text file, or a folder of Markdown files")
      ->capture_default_str();
  command->add_option("--steps", o->demo.steps, "Optimizer steps; 0 takes the demo's own number")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", o->demo.seed, "Same seed, same run, to the bit")
      ->capture_default_str();
  command->add_option("--log", o->demo.log, "demo: write the loss of every step to this file");
  command->allow_extras();
  command->callback([o, command] {
    if (o->show_demo) {
      if (!command->remaining().empty())
        throw core::Error(core::Code::invalid_argument, "the demonstration has no such option")
            .in(command->remaining().front());
      trainer::run_demo(o->demo);
      return;
    }
    for (const char* of_demo : {"--text", "--log"}) {
      if (command->count(of_demo) > 0)
        throw core::Error(core::Code::invalid_argument, "this option belongs to --demo")
            .in(of_demo);
    }
    std::vector<std::string> overrides = o->set;
    if (command->count("--steps") > 0) overrides.push_back(fmt::format("steps={}", o->demo.steps));
    if (command->count("--seed") > 0) overrides.push_back(fmt::format("seed={}", o->demo.seed));
    for (std::string& key : dotted(command->remaining())) overrides.push_back(std::move(key));
    if (!o->resume.empty())
      return run_configuration(trainer::config_of_run(o->resume, overrides), true);
    if (o->config.empty()) {
      throw core::Error(core::Code::invalid_argument, "nothing says what to train")
          .in("train")
          .hint("rose train --config FILE, rose train --resume FOLDER, or rose train --demo");
    }
    run_configuration(trainer::read_config(o->config, overrides), false);
  });
}

}  // namespace rose::app
