// The shape walk of the chapter on notation against the program: the tensors that a checkpoint must hold.
#include "labs/notation/shape_walk.h"

#include <gtest/gtest.h>

#include <map>

#include "rose/model/files/names.h"

namespace rose {
namespace {

model::Config configuration(const labs::ModelShape& shape, model::Family family) {
  model::Config config;
  config.family = family;
  config.vocab_size = shape.vocab;
  config.layers = shape.layers;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.hidden = shape.hidden;
  config.ffn = shape.ffn;
  config.max_positions = 1024;
  config.tied_head = shape.tied_head;
  config.qk_norm = shape.qk_norm;
  return config;
}

void expect_agreement(const labs::ModelShape& shape, model::Family family) {
  std::map<std::string, labs::Shape> walked, expected;
  for (const labs::Step& step : labs::walk(shape, 8)) {
    if (!step.weight.empty()) walked[step.weight] = step.weight_shape;
  }
  std::int64_t count = 0;
  for (const auto& tensor : model::expected_tensors(configuration(shape, family))) {
    expected[tensor.name] = tensor.shape;
    count += labs::elements(tensor.shape);
  }
  EXPECT_EQ(walked, expected);
  EXPECT_EQ(labs::parameters(shape), count);
}

TEST(ShapeWalk, MeetsTheTensorsOfACheckpoint) {
  // vocab, layers, hidden, heads, kv_heads, head_dim, ffn, tied_head, qk_norm
  expect_agreement({49152, 30, 576, 9, 3, 64, 1536, true, false}, model::Family::llama);
  expect_agreement({512, 3, 24, 10, 2, 4, 56, false, true}, model::Family::qwen3);
}

TEST(ShapeWalk, Gpt2HasTheNumbersOfTheChapter) {
  model::Config config =
      configuration({50257, 12, 768, 12, 12, 64, 3072, true, false}, model::Family::gpt2);
  config.norm = model::NormKind::layernorm;
  config.activation = model::Activation::gelu_tanh;
  config.qkv_bias = config.o_bias = config.mlp_bias = true;
  std::int64_t count = 0;
  for (const auto& tensor : model::expected_tensors(config)) count += labs::elements(tensor.shape);
  EXPECT_EQ(count, 124'439'808);
}

}  // namespace
}  // namespace rose
