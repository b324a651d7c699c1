// Other people's programs, and work on several cores.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace weave {

struct Finished {
  int status = 0;  ///< exit status; 127 when the program could not be started
  std::string error;
};

/// Runs a program with its input and output in files (empty: none), and waits. What it says on stderr is returned.
Finished run_program(const std::vector<std::string>& command, const std::string& input, const std::string& output);

/// Calls `work(0)` … `work(count - 1)` on at most `threads` threads. The first exception is thrown again at the end.
void in_parallel(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work);

}  // namespace weave
