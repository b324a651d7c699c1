// Start processes that are one group.

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rose/app/rose_commands.h"
#include "rose/core/error.h"

extern char** environ;

namespace rose::app {

namespace {

using Clock = std::chrono::steady_clock;

struct LaunchArguments {
  int count = 1, nodes = 1, node = 0, port = 0;
  std::string address = "127.0.0.1";
  double grace = 10.0;
  std::vector<std::string> command;
};

// Find a port that nobody uses.
std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool good = socket >= 0 &&
                    ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (!good)
    throw core::Error(core::Code::io, fmt::format("no port can be had: {}", std::strerror(error)))
        .in("--port");
  return ntohs(address.sin_port);
}

// Start one process with its variables.
struct Child {
  int rank = 0;
  pid_t process = 0;
  int output = -1;           ///< what it says, on either stream; -1: the launcher's own
  std::string unfinished{};  ///< the beginning of a line
};

std::vector<std::string> environment_of(const LaunchArguments& a, int local) {
  std::vector<std::string> all;
  const std::array<std::string, 6> ours{fmt::format("RANK={}", a.node * a.count + local),
                                        fmt::format("WORLD_SIZE={}", a.nodes * a.count),
                                        fmt::format("LOCAL_RANK={}", local),
                                        fmt::format("LOCAL_WORLD_SIZE={}", a.count),
                                        fmt::format("MASTER_ADDR={}", a.address),
                                        fmt::format("MASTER_PORT={}", a.port)};
  for (char** old = environ; *old != nullptr; ++old) {
    const std::string_view word(*old);
    const std::string_view name = word.substr(0, word.find('=') + 1);
    if (std::ranges::none_of(ours, [&](const std::string& o) { return o.starts_with(name); }))
      all.emplace_back(word);
  }
  all.insert(all.end(), ours.begin(), ours.end());
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

Child start(const LaunchArguments& a, int local, std::vector<std::string> command) {
  std::vector<std::string> variables = environment_of(a, local);
  Child child{.rank = a.node * a.count + local};
  std::array<int, 2> pipe{-1, -1};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (a.count > 1) {
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
      throw core::Error(core::Code::resource_exhausted, "no pipe can be had").in("launch");
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
    child.output = pipe[0];
  }
  posix_spawnattr_t attributes;  // Ctrl-C means to them what it always means
  posix_spawnattr_init(&attributes);
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &interrupt);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&child.process, command.front().c_str(), &actions, &attributes,
                                 pointers(command).data(), pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (pipe[1] >= 0) ::close(pipe[1]);
  if (error != 0)
    throw core::Error(core::Code::not_found,
                      fmt::format("it cannot be started: {}", std::strerror(error)))
        .in(command.front());
  return child;
}

// Pass on what they say, and end together.
void pass_on(Child& child, bool last) {
  std::array<char, 1 << 16> buffer{};
  const ssize_t n = ::read(child.output, buffer.data(), buffer.size());
  if (n > 0) child.unfinished.append(buffer.data(), static_cast<std::size_t>(n));
  std::string out;
  std::size_t at = 0;
  for (std::size_t end; (end = child.unfinished.find('\n', at)) != std::string::npos; at = end + 1)
    out += fmt::format("[{}] {}\n", child.rank, child.unfinished.substr(at, end - at));
  child.unfinished.erase(0, at);
  if (n > 0 || last) print(out);
  if (n > 0) return;
  if (!child.unfinished.empty()) print(fmt::format("[{}] {}\n", child.rank, child.unfinished));
  child.unfinished.clear();
  ::close(child.output);
  child.output = -1;
}

int status_of(int wait_status) {
  constexpr int by_signal = 128;
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : by_signal + WTERMSIG(wait_status);
}

std::string how(int wait_status) {
  if (WIFEXITED(wait_status)) return fmt::format("ended with status {}", WEXITSTATUS(wait_status));
  return fmt::format("was ended by signal {} ({})", WTERMSIG(wait_status),
                     strsignal(WTERMSIG(wait_status)));
}

/// Signals every process that still runs.
void tell(const std::vector<Child>& children, int signal) {
  for (const Child& child : children)
    if (child.process > 0) ::kill(child.process, signal);
}

int watch(std::vector<Child>& children, double grace) {
  using Milliseconds = std::chrono::milliseconds;
  constexpr auto never = Clock::time_point::max();
  constexpr Milliseconds by_themselves{3000}, last_words{500};
  Clock::time_point ask = never, force = never, quiet = never;
  int status = 0;
  const auto running = [&] {
    const auto lives = [](const Child& c) { return c.process > 0; };
    if (std::ranges::any_of(children, lives)) return true;
    if (quiet == never) quiet = Clock::now() + last_words;
    return Clock::now() < quiet &&
           std::ranges::any_of(children, [](const Child& c) { return c.output >= 0; });
  };
  while (running()) {
    std::vector<pollfd> polled;
    polled.reserve(children.size());
    for (const Child& child : children) polled.push_back({child.output, POLLIN, 0});
    constexpr int pause = 50;  // milliseconds
    ::poll(polled.data(), polled.size(), pause);
    for (std::size_t i = 0; i < children.size(); ++i)
      if (children[i].output >= 0 && polled[i].revents != 0) pass_on(children[i], false);
    for (Child& child : children) {
      int how_it_ended = 0;
      if (child.process <= 0 || ::waitpid(child.process, &how_it_ended, WNOHANG) <= 0) continue;
      child.process = 0;
      const bool asked = force != never && ask == never;
      if (how_it_ended == 0 || asked) continue;
      fmt::print(stderr, "rose launch: rank {} {}\n", child.rank, how(how_it_ended));
      if (status == 0 || WIFSIGNALED(how_it_ended)) status = status_of(how_it_ended);
      if (force != never) continue;
      ask = Clock::now() + by_themselves;
      force = ask + Milliseconds(static_cast<std::int64_t>(1e3 * grace));
    }
    if (Clock::now() > ask) tell(children, SIGTERM), ask = never;
    if (Clock::now() > force) tell(children, SIGKILL);
  }
  return status;
}

}  // namespace

// Declare the command.
void add_launch(CLI::App& app) {
  auto a = std::make_shared<LaunchArguments>();
  CLI::App* command = app.add_subcommand("launch", "Start several processes that work together");
  command->add_option("-n,--count", a->count, "Processes on this machine")
      ->check(CLI::Range(1, 4096));
  command->add_option("--nodes", a->nodes, "Machines")->check(CLI::Range(1, 65536));
  command->add_option("--node", a->node, "Which of them this is, from 0");
  command->add_option("--address", a->address, "Where rank 0 runs, as all others reach it");
  command->add_option("--port", a->port, "Where rank 0 listens; 0: a free one (one machine only)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--grace", a->grace, "Seconds for the others to leave when one has failed");
  command->add_option("command", a->command, "After --: a command of rose, or any program")
      ->required();
  command->callback([a, &app] {
    if (a->node >= a->nodes || (a->nodes > 1 && a->port == 0))
      throw core::Error(core::Code::invalid_argument, "machines must agree on who is who")
          .in("--node")
          .hint("give each its --node below --nodes, and all the same --address and --port");
    if (a->port == 0) a->port = free_port();
    std::vector<std::string> words = a->command;
    const auto named = [&](const CLI::App* sub) { return sub->get_name() == words.front(); };
    if (!app.get_subcommands(named).empty())
      words.insert(words.begin(), engine_path().parent_path() / "rose");
    std::signal(SIGINT, SIG_IGN);  // the children get it, too, and decide
    std::vector<Child> children;
    children.reserve(static_cast<std::size_t>(a->count));
    try {
      for (int local = 0; local < a->count; ++local) children.push_back(start(*a, local, words));
    } catch (...) {
      tell(children, SIGKILL);
      throw;
    }
    const int status = watch(children, a->grace);
    if (status != 0) std::exit(status);
  });
}

}  // namespace rose::app
