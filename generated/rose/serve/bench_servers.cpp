// Start a server to be measured.

#include "rose/serve/bench_servers.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <tuple>

#include "rose/core/error.h"
#include "rose/serve/spawn.h"

namespace rose::serve {

// The servers, their commands and dialects.
const std::vector<ServerKind>& server_kinds() {
  static const std::vector<ServerKind> kinds = {
      {.name = "rose",
       .command = {"rose", "serve", "--model", "{model}", "--port", "{port}", "--served-model-name",
                   "bench"},
       .ready = {"/health"},
       .extra = {},
       .model = "bench"},
      {.name = "llama.cpp",
       .command = {"llama-server", "--model", "{model}", "--port", "{port}", "--parallel",
                   "{streams}", "--ctx-size", "{context}", "--alias", "bench"},
       .ready = {"/health"},
       .extra = {{"timings_per_token", true}, {"cache_prompt", true}},
       .model = "bench"},
      {.name = "vllm",
       .command = {"vllm", "serve", "{model}", "--port", "{port}", "--host", "127.0.0.1",
                   "--served-model-name", "bench"},
       .ready = {"/health"},
       .extra = {},
       .model = "bench"},
      {.name = "sglang",
       .command = {"python3", "-m", "sglang.launch_server", "--model-path", "{model}", "--port",
                   "{port}", "--host", "127.0.0.1", "--served-model-name", "bench"},
       .ready = {"/health_generate", "/health"},
       .extra = {},
       .model = "bench"},
      {.name = "tensorrt-llm",
       .command = {"trtllm-serve", "{model}", "--port", "{port}", "--host", "127.0.0.1"},
       .ready = {"/health"},
       .extra = {}},
      {.name = "transformers",
       .command = {"transformers", "serve", "{model}", "--port", "{port}", "--host", "127.0.0.1",
                   "--continuous-batching"},
       .ready = {"/health", "/v1/models"},
       .extra = {{"ignore_eos", nullptr}, {"stream_options", nullptr}},
       .ids = false}};
  return kinds;
}

const ServerKind& server_kind(std::string_view name) {
  const auto& all = server_kinds();
  const auto found = std::ranges::find(all, name, &ServerKind::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const ServerKind& kind : all) names.push_back(kind.name);
  throw core::Error(core::Code::not_found, "this server is not known")
      .in(std::string(name))
      .hint(fmt::format("known: {}; any other can be measured where it runs, with --port",
                        fmt::join(names, ", ")));
}

// Look whether it is installed.
std::optional<std::string> find_program(const std::string& program) {
  namespace fs = std::filesystem;
  if (program == "rose") return fs::read_symlink("/proc/self/exe").parent_path() / "rose";
  if (program.find('/') != std::string::npos)
    return ::access(program.c_str(), X_OK) == 0 ? std::optional(program) : std::nullopt;
  const char* path = std::getenv("PATH");
  const std::string_view folders = path == nullptr ? "" : path;
  for (std::size_t at = 0; at < folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string candidate = (fs::path(folders.substr(at, end - at)) / program).string();
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = end + 1;
  }
  return std::nullopt;
}

std::optional<std::string> find_server(const ServerKind& kind) {
  auto program = find_program(kind.command.front());
  if (!program || kind.command[1] != "-m") return program;
  const std::string module = kind.command[2].substr(0, kind.command[2].find('.'));
  const std::string ask = fmt::format(
      "'{}' -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(\"{}\") is None)' "
      "2>/dev/null",
      *program, module);
  return std::system(ask.c_str()) == 0 ? program : std::nullopt;  // NOLINT(cert-env33-c)
}

// Keep a thread to some processors.
std::vector<int> parse_processors(std::string_view text) {
  std::vector<int> out;
  const auto number = [&](std::string_view digits) {
    int n = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error != std::errc() || stop != digits.data() + digits.size() || n < 0 || n >= CPU_SETSIZE)
      throw core::Error(core::Code::invalid_argument, "these are no processors")
          .in(std::string(text))
          .hint("write 0-3,8");
    return n;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view one = text.substr(at, end - at);
    at = end + 1;
    const std::size_t dash = one.find('-');
    const int first = number(one.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : number(one.substr(dash + 1));
    for (int n = first; n <= last; ++n) out.push_back(n);
  }
  return out;
}

void pin_thread(const std::vector<int>& processors) {
  if (processors.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int n : processors) CPU_SET(static_cast<std::size_t>(n), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("cannot run on these processors: {}", std::strerror(errno)))
        .in(fmt::format("{}", fmt::join(processors, ",")));
}

// Start, wait, and end it.
namespace {

std::uint16_t free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  std::ignore = ::bind(s, reinterpret_cast<const sockaddr*>(&address), size);
  ::getsockname(s, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(s);
  return ntohs(address.sin_port);
}

}  // namespace

StartedServer::StartedServer(const ServerKind& kind, const StartOptions& options) {
  const auto program = find_server(kind);
  if (!program)
    throw core::Error(core::Code::not_found, fmt::format("{} is not installed", kind.name))
        .in(kind.command.front());
  target_.port = free_port();
  target_.model = kind.model[0] != '\0' ? kind.model : options.model;
  target_.extra = kind.extra;
  target_.words = !kind.ids;
  std::vector<std::string> words = kind.command;
  words.front() = *program;
  for (std::string& word : words) {
    if (word == "{model}") word = options.model;
    if (word == "{port}") word = std::to_string(target_.port);
    if (word == "{streams}") word = std::to_string(options.streams);
    if (word == "{context}") word = std::to_string(options.streams * options.context);
  }
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  command_ = fmt::format("{}", fmt::join(words, " "));
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin_thread(options.processors);
  process_ =
      spawn_process(std::move(words), {.output = options.log.empty() ? "/dev/null" : options.log});
  sched_setaffinity(0, sizeof before, &before);
  try {
    wait_until_ready(kind, options.ready_seconds);
  } catch (...) {
    stop();
    throw;
  }
}

void StartedServer::wait_until_ready(const ServerKind& kind, double seconds) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) != 0) {
      process_ = 0;
      throw core::Error(core::Code::io, "it ended before it was ready").in(command_);
    }
    for (const std::string& path : kind.ready)
      if (ask_once(target_, "GET", path).status == 200) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw core::Error(core::Code::io, fmt::format("it was not ready after {:.0f} s", seconds))
      .in(command_);
}

StartedServer::~StartedServer() {
  stop();
}

void StartedServer::stop() {
  if (process_ == 0) return;
  constexpr int tries = 300;
  ::kill(-process_, SIGTERM);
  int status = 0;
  for (int i = 0; i < tries && ::waitpid(process_, &status, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(-process_, SIGKILL);  // whatever of the group is left
  ::waitpid(process_, &status, 0);
  process_ = 0;
}

}  // namespace rose::serve
