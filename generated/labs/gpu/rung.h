// Name a rung.

#pragma once

#include <span>

#include "rose/kernels/gpu/stream.h"

/// The book's kernels that exist to teach, and what measures them.
namespace rose::labs {

namespace gpu = rose::kernels::gpu;

/// A kernel that adds one idea to the rung before it. `Call` is the type of the function that launches it.
template <class Call>
struct Rung {
  const char* name;
  const char* idea;
  Call* launch;
};

/// A ladder, from the first rung to the last. Empty in a build without CUDA.
template <class Call>
using Rungs = std::span<const Rung<Call>>;

}  // namespace rose::labs
