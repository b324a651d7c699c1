// Compare a model with itself, quantised.

#include <fmt/format.h>

#include <memory>

#include "rose/app/engine_commands.h"
#include "rose/app/engine_quantization.h"
#include "rose/app/models.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/infer/divergence.h"

namespace rose::app {

namespace {

struct CompareArguments {
  std::string model, text, kv_cache_dtype = "auto";
  QuantizationOptions quantization;
  bool calculate_kv_scales = false;
  std::int64_t window = 512;
};

void compare(const CompareArguments& a) {
  const model::Checkpoint checkpoint = model::open_checkpoint(find_model(a.model));
  const text::Tokenizer tokenizer = load_tokenizer(checkpoint);
  if (!checkpoint.quantization.empty())
    throw core::Error(core::Code::unsupported,
                      fmt::format("the checkpoint itself is {}: there is nothing to compare with",
                                  checkpoint.quantization))
        .in("model");
  std::vector<std::int32_t> ids = sample_ids(tokenizer);
  if (!a.text.empty()) {
    ids.assign(tokenizer.prefix().begin(), tokenizer.prefix().end());
    tokenizer.encode(core::read_file(a.text), false, ids);
  }
  const auto base = load_weights({}, checkpoint);
  const auto other = load_weights(a.quantization, checkpoint);
  infer::Variant variant{.weights = other.get(),
                         .kv_dtype = infer::parse_kv_dtype(a.kv_cache_dtype, kernels::DType::f32)};
  if (a.calculate_kv_scales)
    variant.kv_scales = infer::measure_kv_scales(*base, sample_ids(tokenizer));
  const infer::Divergence d = infer::diverge({.weights = base.get()}, variant, ids, a.window);
  const bool packed = !other->quantization().empty();
  print(fmt::format("{}, weights {}, keys and values {}\n", checkpoint.name,
                    packed ? other->quantization() : "as they are", a.kv_cache_dtype));
  print(d.describe() + "\n");
}

}  // namespace

void add_compare(CLI::App& app) {
  auto a = std::make_shared<CompareArguments>();
  CLI::App* command =
      app.add_subcommand("compare", "Measure what a quantised model loses, on a text");
  command->add_option("-m,--model", a->model, "Path, org/name or a name that `rose models` lists");
  add_quantization_options(*command, a->quantization);
  command
      ->add_option("--kv-cache-dtype", a->kv_cache_dtype, "auto, float32, bfloat16, float16 or fp8")
      ->capture_default_str();
  command->add_flag("--calculate-kv-scales", a->calculate_kv_scales,
                    "Measure the scales of an fp8 cache on a text; else they are 1");
  command->add_option("--text", a->text, "A file to read; a few paragraphs when absent")
      ->check(CLI::ExistingFile);
  command->add_option("--window", a->window, "Tokens that are read together")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  command->callback([a] { compare(*a); });
}

}  // namespace rose::app
