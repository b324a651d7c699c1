// Count the bytes.

#include "labs/gpu/scan.h"

namespace rose::labs {

std::size_t scan_workspace(std::int64_t count) {
  if (count < 0 || count >= std::int64_t{1} << 31) gpu::bad_argument("count", "0 to 2^31 - 1");
  // A sum per 512 numbers, a sum per 512 sums and so on; the constant is for alignment and the library.
  return static_cast<std::size_t>(count / 256) * 4 + (std::size_t{1} << 20);
}

std::size_t compact_workspace(std::int64_t count) {
  return scan_workspace(count) + static_cast<std::size_t>(count) * 8 + 512;  // flags and places
}

#ifndef ROSE_HAVE_CUDA
Rungs<Scan> scan_ladder() {
  return {};
}
Rungs<Compact> compact_ladder() {
  return {};
}
Scan* scan_library() {
  return nullptr;
}
Compact* compact_library() {
  return nullptr;
}
#endif

}  // namespace rose::labs
