// Converts between fp32 and a small format, for the oracle test: `convert_dtypes decode f16` reads
// patterns (16 or 8 bits each) and writes fp32; `convert_dtypes encode f16` does the reverse.
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "rose/kernels/dtype.h"

namespace k = rose::kernels;

template <class T, class Encode>
int convert(bool decode, Encode encode) {
  T value{};
  float number = 0;
  if (decode) {
    while (std::fread(&value.bits, sizeof value.bits, 1, stdin) == 1) {
      number = k::to_float(value);
      std::fwrite(&number, sizeof number, 1, stdout);
    }
  } else {
    while (std::fread(&number, sizeof number, 1, stdin) == 1) {
      value = encode(number);
      std::fwrite(&value.bits, sizeof value.bits, 1, stdout);
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const bool decode = std::string_view(arguments[1]) == "decode";
  const std::string_view format = arguments[2];
  if (format == "f16") return convert<k::f16>(decode, [](float x) { return k::to_f16(x); });
  if (format == "bf16") return convert<k::bf16>(decode, [](float x) { return k::to_bf16(x); });
  if (format == "e4m3")
    return convert<k::f8_e4m3>(decode, [](float x) { return k::to_f8_e4m3(x, false); });
  if (format == "e5m2")
    return convert<k::f8_e5m2>(decode, [](float x) { return k::to_f8_e5m2(x, false); });
  return 2;
}
