// Change a model by two thin matrices beside each of its own.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "rose/model/weights.h"

namespace rose::model {

/// The matrices of a block that an adapter may change.
enum class Linear : std::uint8_t { q, k, v, o, gate, up, down };
inline constexpr std::size_t linears = 7;

struct LinearSize {
  std::string_view name;         ///< within a block, canonical: "attn.q"
  std::int64_t in = 0, out = 0;  ///< 0: the family has no such matrix
};
LinearSize linear_size(const Config& config, Linear which);

/// y += scale (x A^T) B^T. Both empty: this matrix stays as it is.
struct LowRank {
  std::vector<float> a;  ///< [rank, in]
  std::vector<float> b;  ///< [out, rank]
};
using LayerAdapter = std::array<LowRank, linears>;

struct Adapter {
  std::int64_t rank = 0;
  float scale = 1.0f;
  std::vector<LayerAdapter> layers;

  const LowRank& at(std::int64_t layer, Linear which) const {
    return layers[static_cast<std::size_t>(layer)][static_cast<std::size_t>(which)];
  }
};

/// The size of a fresh adapter, and what it adapts.
struct AdapterOptions {
  std::int64_t rank = 8;
  float alpha = 16.0f;  ///< the scale is alpha / rank
  std::vector<Linear> targets{Linear::q,    Linear::k,  Linear::v,   Linear::o,
                              Linear::gate, Linear::up, Linear::down};
};

/// An adapter to be trained, which changes nothing yet: A uniform within 1 / sqrt(in), B zero. Targets that the family
/// lacks are left out.
Adapter fresh_adapter(const Config& config, const AdapterOptions& options, std::uint64_t seed);

/// Throws core::Error (invalid_argument) unless every pair has the shape that the configuration asks for.
void check_adapter(const Config& config, const Adapter& adapter);
/// Of rank, scale and all numbers: equal adapters have equal hashes.
std::uint64_t hash(const Adapter& adapter);

/// w += scale B A, for a matrix whose rows have `in` elements: sums in double precision, one rounding.
void add_change(std::span<float> w, std::int64_t in, const LowRank& pair, const Adapter& adapter);

/// The weights with the adapter's change added, all in fp32.
std::shared_ptr<WeightSet> merged(const WeightSet& weights, const Adapter& adapter);

/// A folder in the layout of Hugging Face's PEFT: adapter_config.json, adapter_model.safetensors. Throws core::Error:
/// not_found, corrupt, unsupported for what is not such an adapter (named), invalid_argument for one of another model.
Adapter read_adapter(const std::filesystem::path& folder, const Config& config);
void write_adapter(const std::filesystem::path& folder, const Config& config,
                   const Adapter& adapter);

}  // namespace rose::model
