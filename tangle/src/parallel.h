// Work that is mostly waiting for the kernel, on two threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>

namespace tangle {

/// Calls `work(i)` once for each i below `count`, from two threads where there is enough to do.
template <class Work>
void in_parallel(std::size_t count, const Work& work) {
  constexpr std::size_t few = 16;
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::jthread other;
  if (count >= few) other = std::jthread(run);
  run();
}

}  // namespace tangle
