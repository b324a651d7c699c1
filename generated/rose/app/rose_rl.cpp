// Commands around trajectories.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/rlhf/toy.h"
#include "rose/rlhf/trajectory_file.h"
#include "rose/rlhf/trajectory_json.h"

namespace rose::app {

namespace {

// A summary of a file.
struct InspectOptions {
  std::string file, id;
  bool salvage = false, json = false;
};

void print_summary(const std::vector<rlhf::Trajectory>& all) {
  std::size_t tokens = 0, trained = 0, truncated = 0, forks = 0, mixed = 0;
  std::map<std::string, std::size_t> reasons;
  std::set<std::int64_t> versions;
  double reward = 0;
  for (const rlhf::Trajectory& t : all) {
    tokens += t.tokens.size();
    trained += rlhf::trained_tokens(t);
    truncated += t.ending == rlhf::Ending::truncated ? 1 : 0;
    forks += t.fork ? 1 : 0;
    mixed += t.mixed ? 1 : 0;
    reward += rlhf::total_reward(t);
    ++reasons[t.reason];
    for (const std::int64_t version : t.version)
      if (version >= 0) versions.insert(version);
  }
  std::string out =
      fmt::format("{} trajectories, {} tokens, {} trained\n", all.size(), tokens, trained);
  out += fmt::format("{} truncated, {} forked, {} mixed\n", truncated, forks, mixed);
  if (!all.empty()) out += fmt::format("mean reward {:.4f}\n", reward / double(all.size()));
  if (!versions.empty())
    out += fmt::format("versions {} to {}\n", *versions.begin(), *versions.rbegin());
  for (const auto& [reason, count] : reasons)
    out += fmt::format("ended by '{}': {}\n", reason, count);
  print(out);
}

// Show one trajectory, turn by turn.
void print_turn(const rlhf::Trajectory& t, const rlhf::Turn& turn) {
  const bool action = turn.kind == rlhf::Kind::action;
  std::string out = fmt::format("{}{}{}\n", action ? "action" : "observation",
                                turn.state.empty() ? "" : ", state ", turn.state);
  for (std::size_t i = turn.begin; i < turn.end; ++i) {
    out += fmt::format("  {:>6}  {:>8}", i, t.tokens[i]);
    if (action) {
      out += fmt::format("  {}  version {}  raw {:.4f}  behaviour {:.4f}",
                         t.trained[i] != 0 ? "trained" : "forced ", t.version[i], t.raw[i],
                         t.behaviour[i]);
      if (!t.support[i].empty()) out += fmt::format("  of {} allowed", t.support[i].size());
    }
    out += "\n";
  }
  for (const rlhf::Reward& reward : turn.rewards)
    out += fmt::format("  reward {} {:+g}\n", reward.name, reward.value);
  print(out);
}

void print_one(const rlhf::Trajectory& t) {
  print(fmt::format("{}: task {}, seed {}, environment {} {}, temperature {:g}\n", t.id, t.task,
                    t.seed, t.environment, t.environment_version, t.temperature));
  if (t.fork)
    print(fmt::format("forked from {} at {}: {} became {}\n", t.fork->parent, t.fork->at,
                      t.fork->had, t.fork->got));
  for (const rlhf::Turn& turn : t.turns) print_turn(t, turn);
  print(fmt::format("{}: {}\n", t.ending == rlhf::Ending::terminated ? "terminated" : "truncated",
                    t.reason));
}

void inspect(const InspectOptions& options) {
  const rlhf::TrajectoryFile file =
      options.salvage ? rlhf::salvage_trajectories(options.file)
                      : rlhf::TrajectoryFile{rlhf::read_trajectories(options.file), ""};
  if (!file.damage.empty()) fmt::print(stderr, "damaged: {}\n", file.damage);
  if (options.id.empty()) {
    if (!options.json) return print_summary(file.trajectories);
    for (const auto& t : file.trajectories) print(rlhf::to_json_line(t) + "\n");
    return;
  }
  const auto found = std::ranges::find(file.trajectories, options.id, &rlhf::Trajectory::id);
  if (found == file.trajectories.end())
    throw core::Error(core::Code::not_found, fmt::format("there is no trajectory '{}'", options.id))
        .in(options.file)
        .hint(file.trajectories.empty()
                  ? "the file has none"
                  : fmt::format("the first is '{}'", file.trajectories.front().id));
  if (options.json)
    print(core::pretty_json(core::parse_json(rlhf::to_json_line(*found), "trajectory")) + "\n");
  else
    print_one(*found);
}

void add_inspect(CLI::App& rl) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = rl.add_subcommand("inspect", "Show a file of trajectories, or one of them");
  command->add_option("file", options->file, "JSON lines or binary")->required();
  command->add_option("id", options->id, "Show this trajectory turn by turn");
  command->add_flag("--salvage", options->salvage, "Show what is whole of a damaged file");
  command->add_flag("--json", options->json, "Print JSON instead");
  command->callback([options] { inspect(*options); });
}

// Run the toy, and draw its curve.
struct ToyCommand {
  std::uint64_t seed = 1;
  int seeds = 1, updates = 400;
  std::string record;
};

// Success from 0 to 1 upwards, updates to the right.
std::string curve_of(const std::vector<rlhf::ToyPoint>& curve) {
  constexpr int height = 10, width = 60;
  const auto n = static_cast<int>(curve.size());
  std::string out;
  for (int row = height; row >= 1; --row) {
    out += row == height ? "1.0 |" : row == height / 2 ? "0.5 |" : "    |";
    for (int x = 0; x < std::min(n, width); ++x) {
      const auto at = static_cast<std::size_t>(x * n / std::min(n, width));
      const double level = curve[at].training * height;
      out += level >= row - 0.25 ? "#" : level >= row - 0.75 ? "." : " ";
    }
    out += "\n";
  }
  return out + fmt::format("    +{:-<{}}\n     update 1 to {}\n", "", std::min(n, width), n);
}

void run_toy(const ToyCommand& command) {
  int reached = 0;
  for (int k = 0; k < command.seeds; ++k) {
    rlhf::ToyOptions options{.seed = command.seed + static_cast<std::uint64_t>(k),
                             .updates = command.updates};
    std::unique_ptr<rlhf::TrajectoryWriter> writer;
    if (!command.record.empty() && k == 0) {
      writer =
          std::make_unique<rlhf::TrajectoryWriter>(command.record, rlhf::form_of(command.record));
      options.record = [&](const rlhf::Trajectory& t) { writer->write(t); };
    }
    const rlhf::ToyResult result = rlhf::train_toy(options);
    if (writer) writer->finish();
    if (k == 0) print(curve_of(result.curve));
    print(fmt::format("seed {}: success {:.3f} after {} updates, {} episodes, {} tokens{}\n",
                      options.seed, result.success, result.curve.size(), result.episodes,
                      result.tokens, result.reached ? "" : " (0.95 not reached)"));
    reached += result.reached ? 1 : 0;
  }
  if (command.seeds > 1) print(fmt::format("{} of {} seeds reached it\n", reached, command.seeds));
  if (reached < command.seeds)
    throw core::Error(core::Code::internal, "not every seed reached the target");
}

void add_toy(CLI::App& rl) {
  auto options = std::make_shared<ToyCommand>();
  CLI::App* command = rl.add_subcommand("toy", "Train a small agent with tools, in seconds");
  command->add_option("--seed", options->seed, "The first seed");
  command->add_option("--seeds", options->seeds, "How many seeds, one after the other")
      ->check(CLI::PositiveNumber);
  command->add_option("--updates", options->updates, "At most so many updates")
      ->check(CLI::PositiveNumber);
  command->add_option("--record", options->record,
                      "Write the first seed's trajectories (.bin: binary, else JSON lines)");
  command->callback([options] { run_toy(*options); });
}

}  // namespace

void add_rl(CLI::App& app) {
  CLI::App* rl = app.add_subcommand("rl", "Reinforcement learning: trajectories and a toy");
  rl->require_subcommand(1);
  add_inspect(*rl);
  add_toy(*rl);
}

}  // namespace rose::app
