// Any bytes as a GGUF file: refused with an error for people, or read; then as a model: configuration, tokenizer, every weight.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "rose/core/error.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/assemble.h"
#include "rose/model/files/checkpoint_parts.h"
#include "rose/model/files/config.h"
#include "rose/model/files/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rose;
  try {
    const model::GgufFile file =
        model::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
    model::StoredByName stored;
    for (const model::StoredTensor& tensor : file.tensors()) {
      stored.emplace(tensor.name, model::Stored{tensor, nullptr, "fuzz"});
      if (tensor.bytes.empty()) continue;
      const auto& info = kernels::info(*tensor.dtype);
      const auto block = static_cast<std::size_t>(info.block_bytes);
      if (!kernels::is_plain(*tensor.dtype) || *tensor.dtype == kernels::DType::f32) {
        std::vector<float> out(static_cast<std::size_t>(info.block_elements));
        kernels::dequantize_row(*tensor.dtype, tensor.bytes.data(), out.data(),
                                info.block_elements);
        kernels::dequantize_row(*tensor.dtype, tensor.bytes.data() + tensor.bytes.size() - block,
                                out.data(), info.block_elements);
      }
    }
    model::vocab_in_gguf(file);
    const model::Config config = model::config_from_gguf(file);
    model::assemble(config, model::gguf_naming(config), stored, "fuzz");
  } catch (const core::Error& error) {
    if (error.code() == core::Code::internal) std::abort();
  }
  return 0;
}
