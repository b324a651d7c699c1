// Read who is who from the environment.

#include "rose/dist/world.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "rose/core/error.h"

namespace rose::dist {

namespace {

[[noreturn]] void refuse(const char* name, std::string what) {
  throw core::Error(core::Code::invalid_argument, std::move(what))
      .in(name)
      .hint("`rose launch -n N -- …` sets what a process needs to know");
}

std::optional<int> number(const char* name) {
  const char* const text = name == nullptr ? nullptr : std::getenv(name);
  if (text == nullptr) return {};
  const std::string_view word(text);
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0)
    refuse(name, fmt::format("\"{}\" is no number of a process", word));
  return value;
}

/// How a launcher calls rank, size, rank and size on the machine; what marks a process that it started.
struct Names {
  const char *rank, *size, *local_rank, *local_size, *mark;
};
constexpr std::array<Names, 4> launchers{{
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_RANK"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_STEP_NUM_TASKS"},
}};

}  // namespace

// Take the first launcher that has left its mark.
World world_from_environment() {
  World world;
  for (const Names& names : launchers) {
    if (std::getenv(names.mark) == nullptr) continue;
    const std::optional<int> rank = number(names.rank), size = number(names.size);
    if (!rank) refuse(names.rank, "it is not set, and other variables of a launcher are");
    if (!size) refuse(names.size, fmt::format("it is not set, and {} is", names.rank));
    if (*rank >= *size)
      refuse(names.rank, fmt::format("rank {} of {}: ranks count from 0", *rank, *size));
    world.rank = *rank, world.size = *size;
    world.local_rank = number(names.local_rank).value_or(*rank);
    world.local_size = number(names.local_size).value_or(*size);
    break;
  }
  if (const char* const host = std::getenv("MASTER_ADDR"); host != nullptr && *host != '\0')
    world.master_addr = host;
  if (const std::optional<int> port = number("MASTER_PORT")) {
    if (*port == 0 || *port > std::numeric_limits<std::uint16_t>::max())
      refuse("MASTER_PORT", fmt::format("{} is no port", *port));
    world.master_port = static_cast<std::uint16_t>(*port);
  }
  return world;
}

}  // namespace rose::dist
