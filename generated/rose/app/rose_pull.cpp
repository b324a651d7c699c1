// Pull a model.

#include "rose/app/rose_pull.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/progress.h"
#include "rose/serve/hub.h"

namespace rose::app {
namespace {

struct PullArguments {
  std::string name, revision = "main";
  std::vector<std::string> include;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void pull_model(const PullArguments& a) {
  const std::string endpoint = variable("HF_ENDPOINT");
  if (endpoint.empty())
    throw core::Error(core::Code::invalid_argument, "it is not set, and there is no default")
        .in("HF_ENDPOINT")
        .hint("the address of the hub to pull from, https://…; HF_TOKEN is sent to it");
  std::optional<core::Progress> bar;
  serve::PullOptions options{.endpoint = serve::Url::parse(endpoint),
                             .token = variable("HF_TOKEN"),
                             .repository = a.name,
                             .revision = a.revision,
                             .patterns = a.include,
                             .cache = model::hub_cache_folder()};
  options.progress = [&](std::uint64_t done, std::uint64_t all, const std::string& file) {
    if (!bar) bar.emplace("pull " + a.name, static_cast<std::int64_t>(all), "bytes");
    bar->update(static_cast<std::int64_t>(done), file);
  };
  const std::filesystem::path folder = serve::pull(options);
  if (bar) bar->finish();
  print(fmt::format("{} is in {}\n", a.name, folder.string()));
}

}  // namespace

void add_models_pull(CLI::App& models) {
  auto a = std::make_shared<PullArguments>();
  CLI::App* command = models.add_subcommand(
      "pull", "Fetch a model from the hub that HF_ENDPOINT names; goes on where it was broken off");
  command->add_option("name", a->name, "ORG/NAME")->required();
  command->add_option("--revision", a->revision, "Branch, tag or commit")->capture_default_str();
  command->add_option("--include", a->include,
                      "Names or patterns of files, instead of what a model usually needs");
  command->callback([a] { pull_model(*a); });
}

}  // namespace rose::app
