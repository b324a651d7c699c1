// The gradient of an adapter, for lora_test.py: lora_tool MODEL ADAPTER IDS TARGETS OUT
// IDS and TARGETS are int32 (-1: not learnt); OUT is fp32: the derivative of the mean loss by A and B of every adapted
// matrix, in the order of blocks and of q, k, v, o, gate, up, down.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "rose/core/files.h"
#include "rose/kernels/weighted_cross_entropy.h"
#include "rose/model/adapter_backward.h"
#include "rose/model/files/checkpoint.h"

namespace {

namespace model = rose::model;

std::vector<std::int32_t> read_ids(const std::string& path) {
  const std::string bytes = rose::core::read_file(path);
  std::vector<std::int32_t> out(bytes.size() / sizeof(std::int32_t));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(std::int32_t));
  return out;
}

void gradient(const std::vector<std::string>& args) {
  const auto weights = model::load_weights(model::open_checkpoint(args[0]));
  const model::Config& config = weights->config();
  const model::Adapter adapter = model::read_adapter(args[1], config);
  const std::vector<std::int32_t> ids = read_ids(args[2]), targets = read_ids(args[3]);
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())};
  const std::vector<const model::Adapter*> named{&adapter};
  const model::Batch batch{ids, positions, offsets, named};
  model::Workspace forward(config);
  model::BackwardWorkspace backward(config);
  model::Saved saved;
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const std::size_t c = static_cast<std::size_t>(config.hidden);
  std::vector<float> hidden(ids.size() * c), d_hidden(hidden.size());
  model::forward(*weights, batch, nullptr, &saved, forward, hidden);
  std::vector<float> logits(ids.size() * static_cast<std::size_t>(config.vocab_size)), scales,
      logprobs(ids.size()), lse(ids.size());
  model::logits(*weights, hidden, tokens, forward, logits);
  float learnt = 0;
  std::vector<std::int32_t> next = targets;
  for (std::int32_t& target : next) {
    scales.push_back(target < 0 ? 0.0f : 1.0f);
    learnt += scales.back();
    if (target < 0) target = 0;
  }
  for (float& scale : scales) scale /= learnt;
  rose::kernels::weighted_cross_entropy(logits, tokens, next, scales, 0.0f, logprobs, lse,
                                        forward.pool());
  model::Gradients none(*weights, [](const model::Parameter&) { return false; });
  model::head_backward(*weights, hidden, tokens, logits, d_hidden, none, backward);
  model::Adapter changes = model::zeros_like(adapter);
  model::backward(*weights, adapter, batch, saved, d_hidden, none, changes, backward);
  rose::core::AtomicFile file(args[4]);
  for (const model::LayerAdapter& layer : changes.layers) {
    for (const model::LowRank& pair : layer) {
      file.write(std::as_bytes(std::span(pair.a)));
      file.write(std::as_bytes(std::span(pair.b)));
    }
  }
  file.commit();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() != 5) return 2;
    gradient(args);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
