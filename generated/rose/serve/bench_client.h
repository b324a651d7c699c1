// Put a load on a server, and write down what comes back.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rose/serve/bench_plan.h"

namespace rose::serve {

/// Whom to ask, and how it wants to be asked.
struct Target {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8888;
  std::string model{}, key{};
  bool chat = false;       ///< /v1/chat/completions; else /v1/completions
  bool words = false;      ///< send text; else ids, which chat cannot take
  json::object extra{};    ///< further fields of each request
  double timeout = 600.0;  ///< seconds for one answer
};

/// Bytes of the body up to `end` had arrived at `at`.
struct Piece {
  double at = 0.0;
  std::size_t end = 0;
};

/// All moments are seconds since the start of the load.
struct Observation {
  std::size_t talk = 0, turn = 0;
  std::int64_t wanted = 0;  ///< tokens of the answer
  double due = 0.0, sent = 0.0, end = 0.0;
  int status = 0;       ///< 0: no head arrived
  std::string error{};  ///< of the connection; empty when the answer came to its end
  std::string body{};
  std::vector<Piece> pieces{};
};

struct LoadRun {
  std::vector<Observation> observations;
  double seconds = 0.0;      ///< from the first moment due to the last answer
  double cpu_seconds = 0.0;  ///< of this client's thread meanwhile
};

/// Returns when all have been answered, or have failed. Throws core::Error when the address has no meaning.
LoadRun run_load(const Target& target, const Workload& workload,
                 const std::vector<PlannedTalk>& plan);

/// The body of a request; `history` are the messages so far, or for completions their text, in turns: user, assistant, user, …
std::string request_body(const Target& target, const PlannedTurn& turn,
                         const std::vector<std::string>& history);

/// One GET or POST, whole. Status 0: nobody answered.
struct Reply {
  int status = 0;
  std::string body;
};
Reply ask_once(const Target& target, const std::string& method, const std::string& path,
               const std::string& body = "");

}  // namespace rose::serve
