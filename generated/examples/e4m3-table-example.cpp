// Print the positive E4M3 numbers.

#include <fmt/core.h>

#include "rose/kernels/dtype.h"

int main() {
  for (unsigned exponent = 0; exponent < 16; ++exponent) {
    for (unsigned mantissa = 0; mantissa < 8; ++mantissa) {
      const auto bits = static_cast<std::uint8_t>(exponent << 3 | mantissa);
      fmt::print("{:>12}", rose::kernels::to_float(rose::kernels::f8_e4m3{bits}));
    }
    fmt::print("\n");
  }
}
