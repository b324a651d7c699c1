// What the oracle tests ask of the program: the configuration and a digest of every weight of a checkpoint, conversions, and single
// rows through the block formats.
//   dump_checkpoint dump PATH                   one JSON object
//   dump_checkpoint convert FROM TO TYPE        TYPE "" keeps the weights as they are
//   dump_checkpoint decode|encode TYPE IN OUT   raw files
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/convert.h"

namespace {

using namespace rose;

kernels::DType dtype_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(kernels::DType::q6_k); ++i) {
    if (kernels::info(static_cast<kernels::DType>(i)).name == name)
      return static_cast<kernels::DType>(i);
  }
  throw core::Error(core::Code::invalid_argument, "unknown type " + name);
}

std::string digest(const model::TensorInfo& tensor) {
  const std::int64_t columns = tensor.shape.back(), rows = tensor.elements() / columns;
  const std::size_t stride = kernels::row_bytes(tensor.dtype, columns);
  std::vector<float> row(static_cast<std::size_t>(columns));
  core::Sha256 hash;
  for (std::int64_t i = 0; i < rows; ++i) {
    kernels::dequantize_row(tensor.dtype, tensor.data + static_cast<std::size_t>(i) * stride,
                            row.data(), columns);
    hash.update(std::as_bytes(std::span(row)));
  }
  return hash.hex();
}

void dump(const char* path) {
  const model::Checkpoint checkpoint = model::open_checkpoint(path);
  boost::json::object tensors;
  for (const model::TensorInfo& tensor : checkpoint.tensors) {
    tensors[tensor.name] = {{"shape", boost::json::array(tensor.shape.begin(), tensor.shape.end())},
                            {"dtype", kernels::info(tensor.dtype).name},
                            {"sha256", digest(tensor)}};
  }
  boost::json::object out;
  out["name"] = checkpoint.name;
  out["config"] = model::to_hf_config(checkpoint.config);
  out["chat_template"] = checkpoint.chat_template;
  out["bos_token"] = checkpoint.bos_token;
  out["eos_token"] = checkpoint.eos_token;
  out["vocab"] = checkpoint.vocab ? static_cast<std::int64_t>(checkpoint.vocab->tokens.size()) : -1;
  out["tensors"] = std::move(tensors);
  std::cout << out << "\n";
}

void transcode(bool decode, kernels::DType type, const char* from, const char* to) {
  const std::string in = core::read_file(from);
  const auto& info = kernels::info(type);
  std::string out;
  if (decode) {
    const std::size_t n = in.size() / static_cast<std::size_t>(info.block_bytes) *
                          static_cast<std::size_t>(info.block_elements);
    out.resize(n * sizeof(float));
    kernels::dequantize_row(type, in.data(), reinterpret_cast<float*>(out.data()),
                            static_cast<std::int64_t>(n));
  } else {
    const auto n = static_cast<std::int64_t>(in.size() / sizeof(float));
    out.resize(kernels::row_bytes(type, n));
    kernels::quantize_row(type, reinterpret_cast<const float*>(in.data()), out.data(), n);
  }
  core::write_file_atomic(to, out);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  try {
    if (verb == "dump" && argc == 3) {
      dump(argv[2]);
    } else if (verb == "convert" && argc == 5) {
      model::ConvertOptions options;
      if (*argv[4] != '\0') options.dtype = dtype_named(argv[4]);
      const model::Checkpoint source = model::describe_checkpoint(argv[2]);
      options.tokenizer = source.vocab || source.tokenizer_json;  // random models have none
      model::convert(argv[2], argv[3], options);
    } else if ((verb == "decode" || verb == "encode") && argc == 5) {
      transcode(verb == "decode", dtype_named(argv[2]), argv[3], argv[4]);
    } else {
      std::cerr << "usage: dump_checkpoint dump PATH | convert FROM TO TYPE | decode|encode TYPE "
                   "IN OUT\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << core::describe(error) << "\n";
    return core::exit_code(error);
  }
}
