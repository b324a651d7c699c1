// Find out whether this machine's bits are the canonical ones.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rose::kernels::gpu {

/// One comparison with the plain loop.
struct BitCase {
  std::string path;   ///< "wgmma n64", "cuBLASLt", "small", "general", "emulation"
  std::string shape;  ///< "M 64, N 64, K 1024, normal"
  std::int64_t outputs = 0;
  std::int64_t differing = 0;
};

/// A shape for which cuBLASLt, left alone, would split K first of all.
struct SplitShape {
  std::int64_t m = 0, n = 0, k = 0;
  int pieces = 0;
};

struct SelfTest {
  std::vector<BitCase> cases;
  std::vector<BitCase>
      others;  ///< cuBLASLt's older algorithms, which split nothing; no plan trusts them
  std::vector<BitCase> emulated;   ///< other models of a step than the one that fits
  std::vector<SplitShape> splits;  ///< full extent only
  bool canonical() const;          ///< nothing differs
  std::string summary() const;     ///< "canonical: 40 comparisons, 2,621,440 outputs, none differs"
};

enum class Extent : std::uint8_t {
  brief,  ///< well under a second: for `rose doctor` and a server's start
  full    ///< the record's
};

/// Throws core::Error (unsupported) without a device.
SelfTest self_test(Extent extent);

}  // namespace rose::kernels::gpu
