// stopwatch COMMAND [ARGUMENT…]: runs it once, its output thrown away, and prints {"ms": …, "bytes": …} of it.
//
// A small program measures, not the Python that calls it: until a process has used more memory than the one that
// started it, the kernel reports the starter's peak as its own (the counter is carried over by exec), and starting one
// from a large process takes longer.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstring>

extern char** environ;

int main(int count, char** words) {
  if (count < 2) return 2;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  int status = 0;
  struct rusage usage {};
  const auto start = std::chrono::steady_clock::now();
  if (const int error = posix_spawnp(&child, words[1], &actions, nullptr, words + 1, environ);
      error != 0) {
    std::fprintf(stderr, "stopwatch: %s: %s\n", words[1], std::strerror(error));
    return 1;
  }
  wait4(child, &status, 0, &usage);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::fprintf(stderr, "stopwatch: %s failed (status %d)\n", words[1], status);
    return 1;
  }
  std::printf("{\"ms\": %.4f, \"bytes\": %ld}\n", elapsed.count(), usage.ru_maxrss * 1024L);
  return 0;
}
