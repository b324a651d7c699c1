// Train an adapter in a GPU's memory.

#include "rose/model/gpu_trained_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "rose/core/error.h"
#include "rose/kernels/gpu/dropout.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/model/adapter_dropout.h"

namespace rose::model {

using kernels::DType;
using kernels::gpu::BackwardProduct;
using kernels::gpu::Matrix;
using kernels::gpu::Stream;

// Place every pair, and take the room.
namespace {

constexpr std::size_t kProducts = 4, kLow = 4;           // d_h of three pairs, and h
constexpr std::size_t kLibrary = std::size_t{32} << 20;  // what plans allow cuBLASLt

std::int64_t rounded_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

BlockProduct product_of(Linear which) {
  if (which == Linear::o) return BlockProduct::o;
  if (which == Linear::down) return BlockProduct::down;
  return which == Linear::gate || which == Linear::up ? BlockProduct::up : BlockProduct::qkv;
}

/// Where the columns of a matrix begin in the packed product that it is a part of.
std::int64_t column_of(const Config& c, Linear which) {
  const std::int64_t q = c.heads * c.head_dim;
  if (which == Linear::k) return q;
  if (which == Linear::v) return q + c.kv_heads * c.head_dim;
  return which == Linear::up && c.family != Family::gpt2 ? c.ffn : 0;
}

/// Room for the partial sums of weights' gradients: see GpuTraining.
std::size_t partial_bytes(std::int64_t tokens, std::int64_t n, std::int64_t k, DType dtype) {
  const auto even = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(tokens)));
  const std::int64_t slices = kernels::gpu::backward_slices(
      {.product = BackwardProduct::weight, .m = even, .n = n, .k = k, .in = dtype});
  return slices > 1 ? static_cast<std::size_t>(slices * n * k) * sizeof(float) : 0;
}

}  // namespace

GpuTrainedAdapter::GpuTrainedAdapter(const Config& config, const Adapter& start, DType dtype,
                                     std::int64_t tokens)
    : config_(config),
      dtype_(dtype),
      tokens_(tokens),
      rank_(start.rank),
      padded_(rounded_up(start.rank, 8)),
      scale_(start.scale),
      pairs_(static_cast<std::size_t>(config.layers) * kProducts) {
  check_adapter(config, start);
  if (dtype != DType::bf16 && dtype != DType::f32)
    throw core::Error(core::Code::unsupported, "an adapter is trained in bf16 or fp32")
        .in("precision");
  std::size_t partials = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      const auto which = static_cast<Linear>(i);
      if (start.at(layer, which).a.empty()) continue;
      const LinearSize size = linear_size(config, which);
      const auto product = static_cast<std::size_t>(product_of(which));
      pairs_[static_cast<std::size_t>(layer) * kProducts + product].push_back(
          {which, tensors_.size(), tensors_.size() + 1, column_of(config, which)});
      const auto place = [&](char half, std::vector<std::int64_t> shape, std::int64_t rows,
                             std::int64_t cols) {
        constexpr std::int64_t unit = 64;
        tensors_.push_back({fmt::format("layers.{}.{}.lora_{}", layer, size.name, half),
                            std::move(shape), size_, rows, cols});
        size_ += rounded_up(rows * cols, unit);
        partials = std::max(partials, partial_bytes(tokens, rows, cols, dtype));
      };
      place('a', {rank_, size.in}, padded_, size.in);
      place('b', {size.out, rank_}, size.out, padded_);
      widest_ = std::max(widest_, size.in);
    }
  }
  const std::size_t element = kernels::row_bytes(dtype, 1);
  memory_ = kernels::gpu::Buffer(static_cast<std::size_t>(size_) *
                                 (4 * sizeof(float) + (dtype == DType::f32 ? 0 : element)));
  rows_ = kernels::gpu::Buffer(
      static_cast<std::size_t>(tokens_ *
                               (2 * widest_ + static_cast<std::int64_t>(kLow) * padded_)) *
      element);
  scratch_ = kernels::gpu::Buffer(kLibrary + partials);
  std::vector<kernels::gpu::FlatBlock> blocks;
  for (const PairTensor& t : tensors_) {
    for (std::int64_t at = 0; at < t.rows * t.cols; at += kernels::norm_block) {
      const std::int64_t left = std::min(kernels::norm_block, t.rows * t.cols - at);
      blocks.push_back({t.first + at, static_cast<std::int32_t>(left), 0});
    }
  }
  block_count_ = static_cast<std::int64_t>(blocks.size());
  blocks_ = kernels::gpu::Buffer::of(std::span<const kernels::gpu::FlatBlock>(blocks));
  constexpr std::size_t line = 256;
  sums_ = kernels::gpu::Buffer(line + kernels::gpu::flat_square_sum_workspace(block_count_));
  kernels::gpu::fill_bytes(memory_.data(), 0, memory_.bytes(), {});
  kernels::gpu::synchronize({});
  for (const std::vector<Pair>& of : pairs_) {
    for (const Pair& pair : of) {
      const auto layer =
          static_cast<std::int64_t>(static_cast<std::size_t>(&of - pairs_.data()) / kProducts);
      write(PairArray::masters, tensors_[pair.a], start.at(layer, pair.which).a);
      write(PairArray::masters, tensors_[pair.b], start.at(layer, pair.which).b);
    }
  }
}

// Name what lies where.
std::span<const GpuTrainedAdapter::Pair> GpuTrainedAdapter::pairs(std::size_t layer,
                                                                  BlockProduct which) const {
  return pairs_[layer * kProducts + static_cast<std::size_t>(which)];
}

Matrix GpuTrainedAdapter::weight(std::size_t tensor) const {
  const PairTensor& t = tensors_[tensor];
  void* const data =
      dtype_ == DType::f32
          ? static_cast<void*>(array(PairArray::masters) + t.first)
          : static_cast<void*>(reinterpret_cast<std::uint16_t*>(memory_.as<float>() + 4 * size_) +
                               t.first);
  return {data, dtype_, t.rows, t.cols};
}

Matrix GpuTrainedAdapter::slope(std::size_t tensor) const {
  const PairTensor& t = tensors_[tensor];
  return {array(PairArray::gradients) + t.first, DType::f32, t.rows, t.cols};
}

Matrix GpuTrainedAdapter::columns(const Matrix& of, const Pair& pair) const {
  Matrix m = of;
  m.data = static_cast<std::byte*>(of.data) + kernels::row_bytes(of.dtype, pair.column);
  m.stride = of.row_stride();
  m.cols = linear_size(config_, pair.which).out;
  return m;
}

Matrix GpuTrainedAdapter::low(std::size_t place, std::int64_t rows) const {
  const std::int64_t first =
      2 * tokens_ * widest_ + static_cast<std::int64_t>(place) * tokens_ * padded_;
  return {rows_.as<std::byte>() + kernels::row_bytes(dtype_, first), dtype_, rows, padded_};
}

Matrix GpuTrainedAdapter::wide(std::size_t place, std::int64_t rows, std::int64_t cols) const {
  const std::int64_t first = static_cast<std::int64_t>(place) * tokens_ * widest_;
  return {rows_.as<std::byte>() + kernels::row_bytes(dtype_, first), dtype_, rows, cols};
}

/// x, or what a pass leaves of it.
Matrix GpuTrainedAdapter::thinned(std::size_t layer, Linear which, const Matrix& x,
                                  Stream stream) const {
  if (!thin_) return x;
  const Matrix out = wide(0, x.rows, x.cols);
  kernels::gpu::dropout(x, dropout_of(*thin_, layer, which), out, stream);
  return out;
}

// Zero, measure, step; read and write without the filling.
void GpuTrainedAdapter::zero_gradients(Stream stream) const {
  kernels::gpu::fill_bytes(array(PairArray::gradients), 0,
                           static_cast<std::size_t>(size_) * sizeof(float), stream);
}

void GpuTrainedAdapter::step(const kernels::AdamWStep& step, float scale, Stream stream) const {
  kernels::gpu::flat_adamw(
      blocks_.as<kernels::gpu::FlatBlock>(), block_count_,
      {.weight = array(PairArray::masters),
       .gradient = array(PairArray::gradients),
       .first = array(PairArray::first),
       .second = array(PairArray::second),
       .copy = dtype_ == DType::f32 ? nullptr : static_cast<void*>(memory_.as<float>() + 4 * size_),
       .copy_type = DType::bf16},
      std::span(&step, 1), scale, stream);
}

double GpuTrainedAdapter::square_sum(Stream stream) const {
  constexpr std::size_t line = 256;
  kernels::gpu::flat_square_sum(blocks_.as<kernels::gpu::FlatBlock>(), block_count_,
                                array(PairArray::gradients), sums_.as<double>(),
                                {sums_.as<std::byte>() + line, sums_.bytes() - line}, stream);
  kernels::gpu::synchronize(stream);
  std::array<double, 1> sum{};
  sums_.download(std::as_writable_bytes(std::span(sum)));
  return sum[0];
}

void GpuTrainedAdapter::refresh(Stream stream) const {
  if (dtype_ == DType::f32) return;
  constexpr std::int64_t unit = 64;
  kernels::gpu::cast({array(PairArray::masters), DType::f32, size_ / unit, unit},
                     {memory_.as<float>() + 4 * size_, dtype_, size_ / unit, unit}, stream);
}

std::vector<float> GpuTrainedAdapter::read(PairArray of, const PairTensor& t) const {
  std::vector<float> all(static_cast<std::size_t>(t.rows * t.cols));
  const auto at = static_cast<std::size_t>(static_cast<std::int64_t>(of) * size_ + t.first);
  memory_.download(std::as_writable_bytes(std::span(all)), at * sizeof(float));
  std::vector<float> out;
  for (std::int64_t r = 0; r < t.shape[0]; ++r) {
    const auto row = all.begin() + r * t.cols;
    out.insert(out.end(), row, row + t.shape[1]);
  }
  return out;
}

void GpuTrainedAdapter::write(PairArray of, const PairTensor& t, std::span<const float> values) {
  std::vector<float> all(static_cast<std::size_t>(t.rows * t.cols));
  for (std::int64_t r = 0; r < t.shape[0]; ++r)
    std::copy_n(values.begin() + r * t.shape[1], t.shape[1], all.begin() + r * t.cols);
  const auto at = static_cast<std::size_t>(static_cast<std::int64_t>(of) * size_ + t.first);
  memory_.upload(std::as_bytes(std::span(std::as_const(all))), at * sizeof(float));
  if (of != PairArray::masters) return;
  refresh({});
  kernels::gpu::synchronize({});
}

Adapter GpuTrainedAdapter::adapter() const {
  Adapter out{.rank = rank_, .scale = scale_, .layers = {}};
  out.layers.resize(static_cast<std::size_t>(config_.layers));
  for (std::size_t place = 0; place < pairs_.size(); ++place) {
    for (const Pair& pair : pairs_[place]) {
      LowRank& to = out.layers[place / kProducts][static_cast<std::size_t>(pair.which)];
      to.a = read(PairArray::masters, tensors_[pair.a]);
      to.b = read(PairArray::masters, tensors_[pair.b]);
    }
  }
  return out;
}

// Add what the pairs add.
void GpuTrainedAdapter::forward(std::size_t layer, BlockProduct which, const Matrix& x,
                                const Matrix& y, Stream stream) {
  const std::span<const Pair> all = pairs(layer, which);
  if (all.empty()) return;
  const Matrix from = thinned(layer, all.front().which, x, stream), h = low(0, x.rows);
  for (const Pair& pair : all) {
    const Matrix a = weight(pair.a), b = weight(pair.b), to = columns(y, pair);
    kernels::gpu::linear(
        plans_({.m = x.rows, .n = padded_, .k = a.cols, .in = dtype_, .out = dtype_}),
        {.x = from, .w = a, .y = h}, scratch_.workspace(), stream);
    kernels::gpu::linear(plans_({.m = x.rows,
                                 .n = b.rows,
                                 .k = padded_,
                                 .in = dtype_,
                                 .out = dtype_,
                                 .scaled = true,
                                 .residual = true}),
                         {.x = h, .w = b, .scale = scale_, .residual = to, .y = to},
                         scratch_.workspace(), stream);
  }
}

// Add what the pairs get, and what they give back.
void GpuTrainedAdapter::before_back(std::size_t layer, BlockProduct which, const Matrix& dy,
                                    const Matrix& x, Stream stream) {
  const std::span<const Pair> all = pairs(layer, which);
  if (all.empty()) return;
  const Matrix from = thinned(layer, all.front().which, x, stream), h = low(0, x.rows);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Pair& pair = all[i];
    const Matrix a = weight(pair.a), b = weight(pair.b), change = columns(dy, pair),
                 d_h = low(1 + i, x.rows);
    kernels::gpu::linear(
        plans_(
            {.m = x.rows, .n = padded_, .k = a.cols, .in = dtype_, .out = dtype_, .scaled = true}),
        {.x = from, .w = a, .scale = scale_, .y = h}, scratch_.workspace(), stream);
    kernels::gpu::BackwardShape shape{
        .product = BackwardProduct::weight, .m = x.rows, .n = b.rows, .k = padded_, .in = dtype_};
    linear_backward_weight(back_plans_(shape), change, h, slope(pair.b), scratch_.workspace(),
                           stream);
    shape.product = BackwardProduct::input;
    linear_backward_input(back_plans_(shape), change, b, d_h, scratch_.workspace(), stream);
    kernels::gpu::dropout(d_h, {.rate = 0.0f, .scale = scale_}, d_h, stream);
    shape = {
        .product = BackwardProduct::weight, .m = x.rows, .n = padded_, .k = a.cols, .in = dtype_};
    linear_backward_weight(back_plans_(shape), d_h, from, slope(pair.a), scratch_.workspace(),
                           stream);
  }
}

void GpuTrainedAdapter::after_back(std::size_t layer, BlockProduct which, const Matrix& dx,
                                   Stream stream) {
  const std::span<const Pair> all = pairs(layer, which);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Matrix a = weight(all[i].a), part = wide(1, dx.rows, dx.cols);
    const kernels::gpu::BackwardShape shape{
        .product = BackwardProduct::input, .m = dx.rows, .n = padded_, .k = a.cols, .in = dtype_};
    linear_backward_input(back_plans_(shape), low(1 + i, dx.rows), a, part, scratch_.workspace(),
                          stream);
    if (thin_) kernels::gpu::dropout(part, dropout_of(*thin_, layer, all[i].which), part, stream);
    kernels::gpu::add(dx, part, dx, stream);
  }
}

}  // namespace rose::model
