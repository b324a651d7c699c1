// Saves a small model's checkpoint: write_checkpoint FOLDER gpt2|llama|qwen3. Prints the log probability of each of some tokens.
#include <iostream>
#include <numeric>
#include <string_view>

#include "rose/trainer/checkpoint.h"
#include "rose/trainer/cpu_compute.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (argc != 3) return 2;
  const std::string_view family = argv[2];
  model::Config c;
  c.family = family == "gpt2"    ? model::Family::gpt2
             : family == "llama" ? model::Family::llama
                                 : model::Family::qwen3;
  c.vocab_size = 96, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 16, c.hidden = 64;
  c.ffn = 96, c.max_positions = 64, c.qk_norm = family == "qwen3";
  if (family == "gpt2") {
    c.kv_heads = 4, c.norm = model::NormKind::layernorm,
    c.activation = model::Activation::gelu_tanh;
    c.tied_head = c.qkv_bias = c.o_bias = c.mlp_bias = true;
  }
  c.eos_ids = {0};
  trainer::CpuCompute compute(model::random_weights(c, 3), {});
  trainer::CheckpointWriter writer(argv[1], {.config = c});
  writer.save(compute, {.step = 1});
  writer.wait();
  constexpr std::int32_t n = 40;
  std::vector<std::int32_t> ids(n), positions(n), targets(n);
  std::iota(positions.begin(), positions.end(), 0);
  for (std::int32_t i = 0; i < n; ++i) ids[static_cast<std::size_t>(i)] = (i * 37 + 5) % 96;
  for (std::int32_t i = 0; i < n; ++i) targets[static_cast<std::size_t>(i)] = (i * 37 + 42) % 96;
  const std::vector<std::int32_t> offsets = {0, n};
  std::vector<float> out(n);
  compute.logprobs({ids, positions, offsets, targets, {}}, out);
  for (const float value : out) std::cout << value << "\n";
}
