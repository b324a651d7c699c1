// Start a process in a group of its own, and see it end.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace rose::serve {

struct SpawnOptions {
  int socket = -1;       ///< which the process holds as descriptor 3; -1: none
  std::string output{};  ///< a file that what it prints is appended to; empty: ours
};
/// The first word is the full path of the program. Throws core::Error (not_found).
pid_t spawn_process(std::vector<std::string> words, const SpawnOptions& options);
/// The same with a socket, whose number there "{socket}" in the command becomes.
pid_t spawn_with_socket(std::vector<std::string> command, int socket);
/// Waits for its end, two seconds if patient, and ends it then. Returns its status.
int reap_process(pid_t child, bool patiently);

}  // namespace rose::serve
