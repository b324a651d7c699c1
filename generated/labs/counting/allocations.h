// Count every allocation of a program.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace rose::labs {

/// How often this program has asked for memory. One file of a program may include this header: it replaces
/// every form of operator new and delete, so that a sanitizer finds no pair of which only one half is ours.
inline std::atomic<std::int64_t> allocations{0};

inline void* count_allocation(std::size_t size,
                              std::size_t unit = alignof(std::max_align_t)) noexcept {
  ++allocations;
  return std::aligned_alloc(unit, (size + unit) / unit * unit);
}

inline void* count_or_throw(std::size_t size, std::size_t unit = alignof(std::max_align_t)) {
  if (void* p = count_allocation(size, unit)) return p;
  throw std::bad_alloc();
}

}  // namespace rose::labs

// NOLINTBEGIN(misc-definitions-in-headers)
[[gnu::noinline]] void* operator new(std::size_t n) {
  return rose::labs::count_or_throw(n);
}
[[gnu::noinline]] void* operator new[](std::size_t n) {
  return rose::labs::count_or_throw(n);
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return rose::labs::count_allocation(n);
}
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return rose::labs::count_allocation(n);
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t unit) {
  return rose::labs::count_or_throw(n, static_cast<std::size_t>(unit));
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t unit) {
  return rose::labs::count_or_throw(n, static_cast<std::size_t>(unit));
}

[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
// NOLINTEND(misc-definitions-in-headers)
