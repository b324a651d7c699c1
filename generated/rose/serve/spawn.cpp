// Start a process in a group of its own, and see it end.

#include "rose/serve/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "rose/core/error.h"

extern char** environ;

namespace rose::serve {
namespace {

constexpr int socket_there = 3;

}  // namespace

// Start it.
pid_t spawn_process(std::vector<std::string> words, const SpawnOptions& options) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (options.socket >= 0) posix_spawn_file_actions_adddup2(&actions, options.socket, socket_there);
  if (!options.output.empty()) {
    constexpr int readable = 0644;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, options.output.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, readable);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, words.front().c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw core::Error(core::Code::not_found,
                      fmt::format("it cannot be started: {}", std::strerror(error)))
        .in(words.front());
  return child;
}

pid_t spawn_with_socket(std::vector<std::string> command, int socket) {
  for (std::string& word : command)
    if (word == "{socket}") word = std::to_string(socket_there);
  return spawn_process(std::move(command), {.socket = socket});
}

// See it end.
int reap_process(pid_t child, bool patiently) {
  constexpr int tries = 100, pause = 20'000;  // microseconds
  int status = 0;
  for (int i = 0; patiently && i < tries; ++i) {
    if (waitpid(child, &status, WNOHANG) != 0) return status;
    ::usleep(pause);
  }
  ::kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return status;
}

}  // namespace rose::serve
