// Start a server to be measured.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "rose/serve/bench_client.h"

namespace rose::serve {

struct ServerKind {
  std::string name;
  std::vector<std::string>
      command;  ///< {model}, {port}, {streams}, {context} are replaced; the first is looked for on the PATH
  std::vector<std::string> ready;  ///< paths of which one answers 200 when it is up
  json::object extra;              ///< fields of requests; null takes one away
  bool ids = true;                 ///< takes prompts as token ids
  const char* model = "";          ///< the model's name in requests; empty: as in the command
};
const std::vector<ServerKind>& server_kinds();
const ServerKind& server_kind(std::string_view name);  ///< throws core::Error (not_found)

/// The full path of a program, if it is installed. `rose` is the one that runs.
std::optional<std::string> find_program(const std::string& program);
/// That of the server's program; for a module of Python, only if Python finds the module.
std::optional<std::string> find_server(const ServerKind& kind);

/// Processors "0-3,8"; throws core::Error (invalid_argument).
std::vector<int> parse_processors(std::string_view text);
void pin_thread(
    const std::vector<int>& processors);  ///< this thread and what it starts; empty: nothing

struct StartOptions {
  std::string model;
  std::vector<std::string> arguments{};  ///< further ones
  std::vector<int> processors{};
  int streams = 64;             ///< requests at once that it must be ready for
  std::int64_t context = 4096;  ///< tokens that each of them may have
  double ready_seconds = 900.0;
  std::string log{};  ///< file of what it prints; empty: nowhere
};

/// A server that runs until this is destroyed.
class StartedServer {
 public:
  /// Returns when it is ready. Throws core::Error: not_found when it is not installed, io when it ends or is not ready in time.
  StartedServer(const ServerKind& kind, const StartOptions& options);
  StartedServer(const StartedServer&) = delete;
  StartedServer& operator=(const StartedServer&) = delete;
  ~StartedServer();
  const Target& target() const { return target_; }
  const std::string& command() const { return command_; }

 private:
  void wait_until_ready(const ServerKind& kind, double seconds);
  void stop();
  Target target_;
  std::string command_;
  pid_t process_ = 0;
};

}  // namespace rose::serve
