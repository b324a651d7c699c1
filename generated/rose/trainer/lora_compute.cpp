// The same pass, another set of tensors.

#include "rose/trainer/lora_compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/kernels/adamw.h"

namespace rose::trainer {

// Draw an adapter, and list its matrices.
model::AdapterOptions adapter_options(const LoraConfig& config) {
  constexpr std::array<std::string_view, model::linears> names{"q",    "k",  "v",   "o",
                                                               "gate", "up", "down"};
  model::AdapterOptions out{.rank = config.rank, .alpha = config.alpha, .targets = {}};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::count(config.targets, std::string(names[i])) > 0)
      out.targets.push_back(static_cast<model::Linear>(i));
  }
  return out;
}

LoraCompute::LoraCompute(std::shared_ptr<model::WeightSet> weights, const ComputeOptions& options,
                         const model::AdapterOptions& adapter, std::uint64_t seed,
                         core::ThreadPool& pool)
    : CpuCompute(
          std::move(weights),
          {.optimizer = {.frozen = {""}}, .z_loss = options.z_loss},  // every name begins with ""
          [](const model::Parameter&) { return false; }, pool),
      adapter_(model::fresh_adapter(weights_->config(), adapter, seed)),
      changes_(model::zeros_like(adapter_)),
      part_(changes_),
      rules_(options.optimizer),
      dropout_(lora_dropout(0.0f, seed)) {
  const std::int64_t r = adapter_.rank;
  for (std::size_t l = 0; l < adapter_.layers.size(); ++l) {
    for (std::size_t i = 0; i < model::linears; ++i) {
      if (adapter_.layers[l][i].a.empty()) continue;
      const auto size = model::linear_size(weights_->config(), static_cast<model::Linear>(i));
      for (const bool b : {false, true}) {
        const auto half = [&](model::Adapter& of) {
          return b ? &of.layers[l][i].b : &of.layers[l][i].a;
        };
        Piece piece{.name = fmt::format("layers.{}.{}.lora_{}", l, size.name, b ? 'b' : 'a'),
                    .shape = b ? std::vector{size.out, r} : std::vector{r, size.in},
                    .weight = half(adapter_),
                    .change = half(changes_),
                    .part = half(part_),
                    .first = {},
                    .second = {}};
        piece.first.assign(piece.weight->size(), 0.0f);
        piece.second.assign(piece.weight->size(), 0.0f);
        pieces_.push_back(std::move(piece));
      }
    }
  }
  if (pieces_.empty())
    throw core::Error(core::Code::invalid_argument, "this family has none of these matrices")
        .in("lora.targets");
}

// Name the adapter on the way in, fill its gradient on the way back.
model::Batch LoraCompute::input(const MicroBatch& batch) const {
  model::Batch in = batch_of(batch);
  named_.assign(batch.row_offsets.size() - 1, &adapter_);
  in.adapters = named_;
  if (thin_) in.adapter_dropout = &dropout_;
  return in;
}

void LoraCompute::back(const MicroBatch& batch, model::Gradients& gradients) {
  model::backward(*weights_, adapter_, input(batch), saved_, d_hidden_, gradients, *into_,
                  backward_work_);
}

void LoraCompute::zero_gradients() {
  for (Piece& piece : pieces_) std::ranges::fill(*piece.change, 0.0f);
  fresh_ = true;
}

LossSum LoraCompute::accumulate(const MicroBatch& batch, double scale) {
  thin_ = dropout_.rate > 0.0f;
  if (thin_) dropout_.stream = passes_.next();
  const bool first = std::exchange(fresh_, false);
  if (!first) {
    for (Piece& piece : pieces_) std::ranges::fill(*piece.part, 0.0f);
  }
  into_ = first ? &changes_ : &part_;
  const LossSum sum = run(batch, Pass::train, scale, gradients_);
  thin_ = false;
  if (first) return sum;
  for (Piece& piece : pieces_) {
    for (std::size_t i = 0; i < piece.change->size(); ++i) (*piece.change)[i] += (*piece.part)[i];
  }
  return sum;
}

// Norm and update, in the order of the list.
double LoraCompute::gradient_norm() {
  std::vector<double> sums;
  constexpr auto block = static_cast<std::size_t>(kernels::norm_block);
  for (const Piece& piece : pieces_) {
    const std::size_t before = sums.size();
    sums.resize(before + (piece.change->size() + block - 1) / block);
    kernels::square_sums(*piece.change, std::span(sums).subspan(before), pool_);
  }
  return std::sqrt(kernels::fold_square_sums(sums));
}

void LoraCompute::update(const UpdateArgs& args) {
  ParameterRule rule;
  rule.decay = rules_.weight_decay;
  const kernels::AdamWStep step = adamw_step(rules_, rule, args.update, args.rate);
  for (Piece& piece : pieces_)
    kernels::adamw(*piece.weight, *piece.change, static_cast<float>(args.scale), piece.first,
                   piece.second, step, pool_);
  weights_->set_version(weights_->version() + 1);
}

// Show the state, and what others read of it.
kernels::Dropout lora_dropout(float rate, std::uint64_t seed) {
  constexpr std::uint64_t other = 0x6c65617665;
  return {.rate = rate, .seed = seed ^ other};
}

void LoraCompute::set_dropout(float rate) {
  dropout_.rate = rate;
}

void PassCounter::visit(const std::function<void(const StateTensor&)>& visitor) {
  constexpr std::uint64_t half = std::uint64_t{1} << 24;  // what fits into a float, exactly
  StateTensor tensor;
  tensor.role = "passes", tensor.name = "dropout", tensor.shape = {2};
  tensor.bytes = 2 * sizeof(float);
  tensor.read = [this](std::span<std::byte> to) {
    const std::uint64_t low = count_ % half, high = count_ / half;
    const std::array<float, 2> values{static_cast<float>(low), static_cast<float>(high)};
    std::memcpy(to.data(), values.data(), sizeof values);
  };
  tensor.write = [this](std::span<const std::byte> from) {
    std::array<float, 2> values{};
    std::memcpy(values.data(), from.data(), sizeof values);
    count_ = static_cast<std::uint64_t>(values[0]) + half * static_cast<std::uint64_t>(values[1]);
  };
  visitor(tensor);
}

void LoraCompute::visit(const std::function<void(const StateTensor&)>& visitor) {
  if (dropout_.rate > 0.0f) passes_.visit(visitor);
  for (Piece& piece : pieces_) {
    const auto show = [&](const char* role, std::vector<float>& values) {
      StateTensor tensor;
      tensor.role = role, tensor.name = piece.name, tensor.shape = piece.shape;
      tensor.bytes = values.size() * sizeof(float);
      const auto fits = [name = piece.name, bytes = tensor.bytes](std::size_t given) {
        if (given == bytes) return;
        throw core::Error(core::Code::invalid_argument, "a state tensor has another size").in(name);
      };
      tensor.read = [&values, fits](std::span<std::byte> to) {
        fits(to.size());
        std::memcpy(to.data(), values.data(), to.size());
      };
      tensor.write = [this, &values, fits](std::span<const std::byte> from) {
        fits(from.size());
        std::memcpy(values.data(), from.data(), from.size());
        weights_->set_version(weights_->version() + 1);
      };
      visitor(tensor);
    };
    show("weight", *piece.weight);
    show("first", piece.first);
    show("second", piece.second);
  }
}

const model::WeightSet& LoraCompute::weights() {
  if (merged_ == nullptr || merged_version_ != weights_->version()) {
    merged_.reset();  // not two of them at once
    merged_ = model::merged(*weights_, adapter_);
    merged_version_ = weights_->version();
  }
  return *merged_;
}

std::int64_t LoraCompute::trained() const {
  std::int64_t n = 0;
  for (const Piece& piece : pieces_) n += static_cast<std::int64_t>(piece.weight->size());
  return n;
}

DeviceInfo LoraCompute::device() const {
  DeviceInfo info = CpuCompute::device();
  info.name = fmt::format("cpu, an adapter of {:.2f} million numbers",
                          static_cast<double>(trained()) / 1e6);
  info.memory_used = weights_->bytes() + 5 * trained() * static_cast<std::int64_t>(sizeof(float));
  return info;
}

std::function<void(const std::filesystem::path&)> adapter_files(const model::Config& config,
                                                                const model::Adapter& adapter) {
  return [adapter, config](const std::filesystem::path& folder) {
    model::write_adapter(folder, config, adapter);
    core::json::array stops;
    for (const std::int32_t id : config.eos_ids) stops.push_back(id);
    core::write_file_atomic(folder / "generation_config.json",
                            core::pretty_json(core::json::object{{"eos_token_id", stops}}));
  };
}

std::vector<std::span<float>> LoraCompute::gradient_spans() {
  std::vector<std::span<float>> out;
  out.reserve(pieces_.size());
  for (Piece& piece : pieces_) out.emplace_back(*piece.change);
  return out;
}

std::function<void(const std::filesystem::path&)> LoraCompute::files() {
  return adapter_files(weights_->config(), adapter_);
}

}  // namespace rose::trainer
