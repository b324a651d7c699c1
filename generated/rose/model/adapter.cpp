// Change a model by two thin matrices beside each of its own.

#include "rose/model/adapter.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

#include "rose/core/error.h"
#include "rose/core/hash.h"
#include "rose/core/rng.h"
#include "rose/kernels/quant.h"

namespace rose::model {

// Know the shape of each matrix.
LinearSize linear_size(const Config& c, Linear which) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  switch (which) {
    case Linear::q: return {"attn.q", c.hidden, q};
    case Linear::k: return {"attn.k", c.hidden, kv};
    case Linear::v: return {"attn.v", c.hidden, kv};
    case Linear::o: return {"attn.o", q, c.hidden};
    case Linear::gate:
      return c.family == Family::gpt2 ? LinearSize{"ffn.gate"}
                                      : LinearSize{"ffn.gate", c.hidden, c.ffn};
    case Linear::up: return {"ffn.up", c.hidden, c.ffn};
    case Linear::down: return {"ffn.down", c.ffn, c.hidden};
  }
  throw core::Error(core::Code::internal, "no such matrix").in("adapter");
}

// Draw A, and leave B at zero.
Adapter fresh_adapter(const Config& config, const AdapterOptions& options, std::uint64_t seed) {
  if (options.rank < 1) {
    throw core::Error(core::Code::invalid_argument, fmt::format("{} is not positive", options.rank))
        .in("rank");
  }
  Adapter out{.rank = options.rank,
              .scale = options.alpha / static_cast<float>(options.rank),
              .layers = std::vector<LayerAdapter>(static_cast<std::size_t>(config.layers))};
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (const Linear target : options.targets) {
      const LinearSize size = linear_size(config, target);
      if (size.out == 0) continue;
      LowRank& pair = out.layers[static_cast<std::size_t>(layer)][static_cast<std::size_t>(target)];
      pair.a.resize(static_cast<std::size_t>(options.rank * size.in));
      pair.b.assign(static_cast<std::size_t>(size.out * options.rank), 0.0f);
      core::Rng rng(
          seed, static_cast<std::uint64_t>(layer) * linears + static_cast<std::uint64_t>(target));
      const float bound = 1.0f / std::sqrt(static_cast<float>(size.in));
      for (float& x : pair.a) x = (2.0f * rng.uniform() - 1.0f) * bound;
    }
  }
  return out;
}

// Refuse another model's adapter; hash.
void check_adapter(const Config& config, const Adapter& adapter) {
  const auto refuse = [](std::string message) {
    throw core::Error(core::Code::invalid_argument, std::move(message)).in("adapter");
  };
  if (adapter.rank < 1) refuse(fmt::format("a rank of {}", adapter.rank));
  if (static_cast<std::int64_t>(adapter.layers.size()) != config.layers) {
    refuse(fmt::format("{} layers, and the model has {}", adapter.layers.size(), config.layers));
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      const auto which = static_cast<Linear>(i);
      const LinearSize size = linear_size(config, which);
      const LowRank& pair = adapter.at(layer, which);
      if (pair.a.empty() && pair.b.empty()) continue;
      if (pair.a.size() != static_cast<std::size_t>(adapter.rank * size.in) ||
          pair.b.size() != static_cast<std::size_t>(size.out * adapter.rank)) {
        refuse(fmt::format("layer {}: {} and {} numbers for {}, a matrix of {} by {}, at rank {}",
                           layer, pair.a.size(), pair.b.size(), size.name, size.out, size.in,
                           adapter.rank));
      }
    }
  }
}

std::uint64_t hash(const Adapter& adapter) {
  std::vector<std::uint64_t> parts{static_cast<std::uint64_t>(adapter.rank)};
  parts.push_back(core::xxh3(std::as_bytes(std::span(&adapter.scale, 1))));
  for (const LayerAdapter& layer : adapter.layers) {
    for (const LowRank& pair : layer) {
      parts.push_back(core::xxh3(std::as_bytes(std::span(pair.a))));
      parts.push_back(core::xxh3(std::as_bytes(std::span(pair.b))));
    }
  }
  return core::xxh3(std::as_bytes(std::span(std::as_const(parts))));
}

// Add the change to copies of the weights.
void add_change(std::span<float> w, std::int64_t in, const LowRank& pair, const Adapter& adapter) {
  const auto rank = static_cast<std::size_t>(adapter.rank), width = static_cast<std::size_t>(in);
  for (std::size_t at = 0; at < w.size(); ++at) {
    double change = 0;
    for (std::size_t r = 0; r < rank; ++r)
      change += double{pair.b[at / width * rank + r]} * double{pair.a[r * width + at % width]};
    w[at] += static_cast<float>(double{adapter.scale} * change);
  }
}

std::shared_ptr<WeightSet> merged(const WeightSet& weights, const Adapter& adapter) {
  check_adapter(weights.config(), adapter);
  auto out = random_weights(weights.config(), 0);
  for (std::size_t p = 0; p < weights.parameters().size(); ++p) {
    const kernels::MatrixView from = weights.parameters()[p].view();
    const std::span<float> to = out->parameter(weights.parameters()[p].name).f32();
    for (std::int64_t r = 0; r < from.rows; ++r)
      kernels::dequantize_row(from.dtype, from.row(r), to.data() + r * from.cols, from.cols);
  }
  for (std::size_t layer = 0; layer < adapter.layers.size(); ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      const LowRank& pair = adapter.layers[layer][i];
      if (pair.a.empty()) continue;
      const LinearSize size = linear_size(weights.config(), static_cast<Linear>(i));
      const std::string name = fmt::format("layers.{}.{}.weight", layer, size.name);
      add_change(out->parameter(name).f32(), size.in, pair, adapter);
    }
  }
  return out;
}

}  // namespace rose::model
