// Any bytes as a safetensors file and as a safetensors index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rose/core/error.h"
#include "rose/model/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rose;
  const auto attempt = [](auto&& parse) {
    try {
      parse();
    } catch (const core::Error& error) {
      if (error.code() == core::Code::internal) std::abort();
    }
  };
  attempt([&] {
    const auto file = model::SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
    unsigned sum = 0;  // touch the ends of every tensor
    for (const model::StoredTensor& tensor : file.tensors()) {
      if (!tensor.bytes.empty())
        sum += static_cast<unsigned>(tensor.bytes.front()) +
               static_cast<unsigned>(tensor.bytes.back());
    }
    volatile unsigned keep = sum;
    static_cast<void>(keep);
  });
  attempt([&] {
    model::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "fuzz");
  });
  return 0;
}
