// The front: everything that needs no LibTorch, and the door to what does.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "rose/app/cli.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"

namespace {

// Replace this process by the engine.
struct EngineCommand {
  const char* name;
  const char* what;
};
constexpr std::array engine_commands = {
    EngineCommand{"generate", "Continue a text"},
    EngineCommand{"chat", "Talk with a model"},
    EngineCommand{"train", "Train a model"},
    EngineCommand{"compare", "Measure what a quantised model loses, on a text"},
    EngineCommand{"export", "Write a model and its adapter as one model"},
    EngineCommand{"eval", "Measure a model on texts and tasks"},
};

bool needs_engine(std::string_view command) {
  return std::ranges::any_of(engine_commands, [&](const auto& c) { return c.name == command; });
}

void exec_engine(char** argv) {
  const std::string engine = rose::app::engine_path().string();
  std::vector<char*> arguments;
  for (char** a = argv; *a != nullptr; ++a) arguments.push_back(*a);
  arguments.push_back(nullptr);
  execv(engine.c_str(), arguments.data());
  throw rose::core::Error(rose::core::Code::not_found,
                          fmt::format("cannot start the engine: {}", std::strerror(errno)))
      .in(engine)
      .hint(
          "this build has no LibTorch, or rose was moved away from rose-engine; "
          "`make build` makes both");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && needs_engine(argv[1])) return rose::app::guarded([&] { exec_engine(argv); });
  CLI::App app("RoseLLM: train, inspect and run language models.", "rose");
  for (const auto& [name, what] : engine_commands) app.add_subcommand(name, what);
  rose::app::add_tokenize(app);
  rose::app::add_convert(app);
  rose::app::add_data(app);
  rose::app::add_models(app);
  rose::app::add_doctor(app);
  rose::app::add_bench(app);
  rose::app::add_serve(app);
  rose::app::add_bench_serve(app);
  rose::app::add_launch(app);
  rose::app::add_rl(app);
  return rose::app::run(app, argc, argv);
}
