// Make a model and its adapter one.

#include "rose/model/merge_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/kernels/quant.h"

namespace rose::model {

namespace fs = std::filesystem;
namespace json = core::json;

namespace {

// Add the change, and round once.
void add_to(TensorInfo& tensor, std::int64_t in, const LowRank& pair, const Adapter& adapter) {
  const auto rows = tensor.elements() / in;
  const auto width = static_cast<std::size_t>(in);
  std::vector<float> sum(static_cast<std::size_t>(rows) * width);
  const std::size_t row = kernels::row_bytes(tensor.dtype, in);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
    kernels::dequantize_row(tensor.dtype, tensor.data + r * row, sum.data() + r * width, in);
  add_change(sum, in, pair, adapter);
  if (!kernels::is_plain(tensor.dtype)) tensor.dtype = kernels::DType::f32;
  const std::size_t written = kernels::row_bytes(tensor.dtype, in);
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(rows) * written);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
    kernels::quantize_row(tensor.dtype, sum.data() + r * width, bytes->data() + r * written, in);
  tensor.data = bytes->data();
  tensor.bytes = bytes->size();
  tensor.owner = std::move(bytes);
}

// Read how an adapter chats, and say it in the model's files.
struct Form {
  json::object tokenizer{}, generation{};  ///< empty: as the model's
};

json::object object_in(const fs::path& file) {
  if (!fs::exists(file)) return {};
  const json::value value = core::parse_json(core::read_file(file), file.string());
  return core::as_object(value, file.string());
}

Form form_of(const fs::path& adapter) {
  Form form{object_in(adapter / "tokenizer_config.json"),
            object_in(adapter / "generation_config.json")};
  if (!form.tokenizer.contains("chat_template")) form.tokenizer.clear();
  return form;
}

/// Entries of a JSON file become those of `from`, as far as they are among `keys`.
void patch(const fs::path& file, const json::object& from,
           std::initializer_list<const char*> keys) {
  if (from.empty()) return;
  json::object object = object_in(file);
  for (const char* const key : keys) {
    if (from.contains(key)) object[key] = from.at(key);
  }
  core::write_file_atomic(file, core::pretty_json(object) + "\n");
}

void finish(const Form& form, const fs::path& folder) {
  patch(folder / "tokenizer_config.json", form.tokenizer,
        {"chat_template", "bos_token", "eos_token"});
  if (!form.tokenizer.empty()) fs::remove(folder / "chat_template.jinja");  // it would go first
  patch(folder / "generation_config.json", form.generation, {"eos_token_id"});
}

}  // namespace

// Merge what is open, and write it.
Checkpoint merge_adapter(const Checkpoint& checkpoint, const fs::path& adapter) {
  if (!checkpoint.quantization.empty())
    throw core::Error(core::Code::unsupported,
                      fmt::format("its matrices are packed ({})", checkpoint.quantization))
        .in(checkpoint.path.string())
        .hint("merge the adapter into the model that this one was made of");
  const Adapter change = read_adapter(adapter, checkpoint.config);
  Checkpoint out = checkpoint;
  for (std::size_t layer = 0; layer < change.layers.size(); ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      const LowRank& pair = change.layers[layer][i];
      if (pair.a.empty()) continue;
      const LinearSize size = linear_size(out.config, static_cast<Linear>(i));
      const std::string name = fmt::format("layers.{}.{}.weight", layer, size.name);
      const auto tensor = std::ranges::find(out.tensors, name, &TensorInfo::name);
      if (tensor == out.tensors.end())
        throw core::Error(core::Code::corrupt, fmt::format("tensor {} is missing", name))
            .in(out.path.string());
      add_to(*tensor, size.in, pair, change);
    }
  }
  const Form form = form_of(adapter);
  const std::string where = adapter.string();
  if (!form.tokenizer.empty()) {
    out.chat_template = std::string(core::get_string(form.tokenizer, "chat_template", where));
    out.bos_token = std::string(core::get_string_or(form.tokenizer, "bos_token", "", where));
    out.eos_token = std::string(core::get_string_or(form.tokenizer, "eos_token", "", where));
  }
  if (form.generation.contains("eos_token_id"))
    out.config.eos_ids = hf_token_ids(form.generation, "eos_token_id", where);
  return out;
}

ConvertResult export_merged(const Checkpoint& checkpoint, const fs::path& adapter,
                            const fs::path& to, ConvertOptions options) {
  options.finish = [form = form_of(adapter)](const fs::path& folder) { finish(form, folder); };
  return convert(merge_adapter(checkpoint, adapter), to, options);
}

}  // namespace rose::model
