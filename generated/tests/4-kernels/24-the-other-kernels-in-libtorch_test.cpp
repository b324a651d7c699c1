// Tests of the chapter "The other kernels in LibTorch".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/kernels/adapter_torch.h"
#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/kv_cache_torch.h"
#include "rose/kernels/optimizer_torch.h"
#include "rose/kernels/packed_torch.h"
#include "rose/kernels/sampling_torch.h"

namespace rose::kernels {
namespace {

// Draw, and compare.
using autograd::Tensors;
using gpu::WeightFormat;

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType type = at::kFloat) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  std::ranges::copy(gpu::random_values(values.numel(), seed), values.mutable_data_ptr<float>());
  return values.to(type);
}

at::Tensor plain(const at::Tensor& x) {
  return x.detach().to(at::kCPU, at::kDouble);
}

/// The largest difference, in units of the largest value.
double off(const at::Tensor& ours, const at::Tensor& theirs) {
  const double most = theirs.numel() == 0 ? 1 : plain(theirs).abs().max().item<double>();
  return (plain(ours) - plain(theirs)).abs().max().item<double>() / std::max(most, 1e-30);
}

at::Tensor whole(std::initializer_list<std::int32_t> numbers, at::IntArrayRef sizes) {
  return at::tensor(std::vector<std::int32_t>(numbers)).reshape(sizes);
}

/// Runs on the CPU in fp32 or on a GPU in bf16, and how much the largest value may be off by.
struct Where {
  at::Device device = at::kCPU;
  at::ScalarType type = at::kFloat;
  double allowed = 1e-5;
};
const Where here{}, there{at::kCUDA, at::kBFloat16, 2e-2};

// Packed weights: the numbers, the product, and what passes through.
void check_packed(const Where& at) {
  const at::Tensor w = drawn({24, 96}, 1), x = drawn({7, 96}, 2, at.type),
                   bias = drawn({24}, 3, at.type), dy = drawn({7, 24}, 4, at.type);
  for (const WeightFormat format :
       {WeightFormat::int8, WeightFormat::int4, WeightFormat::fp8_e4m3}) {
    for (const std::int64_t group : {0, 32}) {
      autograd::PackedTensor packed = autograd::pack_weight(w.to(at.device), format, group);
      const at::Tensor unpacked = autograd::unpack_weight(packed);
      constexpr double coarse = 0.09;  // half of a step of four bits
      EXPECT_LE(off(unpacked, w), format == WeightFormat::int4 ? coarse : coarse / 2);
      const at::Tensor leaf = x.to(at.device).clone().requires_grad_();
      const at::Tensor y = autograd::linear_packed(leaf, packed, bias.to(at.device));
      y.backward(dy.to(at.device));
      EXPECT_LE(off(y, at::linear(plain(x), plain(unpacked), plain(bias))), at.allowed);
      EXPECT_LE(off(leaf.grad(), plain(dy).matmul(plain(unpacked))), at.allowed);
    }
  }
}

TEST(OtherKernelsInTorch, PackedWeights) {
  check_packed(here);
  const at::Tensor byte = at::tensor(std::vector<std::int64_t>{0x3a, 0xf9}).to(at::kByte);
  const autograd::PackedTensor four{byte.view({1, 2}), at::tensor({0.5f}).view({1, 1}),
                                    WeightFormat::int4, 0};
  const std::vector<float> numbers{1, -2.5f, 0.5f, 3.5f};  // (10 - 8) / 2, (3 - 8) / 2, ...
  EXPECT_TRUE(autograd::unpack_weight(four).to(at::kFloat).equal(at::tensor(numbers).view({1, 4})));
}

// One adapter there and back, and several in one batch.
void check_adapter(const Where& at) {
  const Tensors in{drawn({9, 40}, 5, at.type), drawn({9, 64}, 6, at.type),
                   drawn({8, 64}, 7, at.type), drawn({40, 8}, 8, at.type)};
  const at::Tensor dy = drawn({9, 40}, 9, at.type);
  Tensors ours, theirs;
  for (const at::Tensor& t : in) {
    ours.push_back(t.to(at.device).clone().requires_grad_());
    theirs.push_back(plain(t).clone().requires_grad_());
  }
  const at::Tensor y = autograd::add_adapter(ours[0], ours[1], ours[2], ours[3], 0.5);
  y.backward(dy.to(at.device));
  const at::Tensor want = theirs[0] + at::linear(at::linear(theirs[1], theirs[2]), theirs[3]) * 0.5;
  want.backward(plain(dy));
  EXPECT_LE(off(y, want), at.allowed);
  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_LE(off(ours[i].grad(), theirs[i].grad()), at.allowed) << i;
  }
  // Three groups: an adapter, none, and the same adapter with another scale.
  const at::NoGradGuard off_graph;
  const at::Tensor a = in[2].to(at.device), b = in[3].to(at.device), x = in[1].to(at.device);
  const at::Tensor sum = in[0].to(at.device).clone();
  const std::vector<autograd::AdapterOfRows> groups{{a, b, 1}, {}, {a, b, 2}};
  autograd::add_adapters(sum, x, groups, std::vector<std::int32_t>{0, 4, 6, 9});
  const at::Tensor product = plain(x).matmul(plain(a).t()).matmul(plain(b).t());
  const at::Tensor factors =
      at::cat({at::full({4, 1}, 1.0), at::full({2, 1}, 0.0), at::full({3, 1}, 2.0)});
  EXPECT_LE(off(sum, plain(in[0]) + product * factors), at.allowed);
  EXPECT_TRUE(sum.narrow(0, 4, 2).equal(in[0].to(at.device).narrow(0, 4, 2)));
}

TEST(OtherKernelsInTorch, Adapters) {
  check_adapter(here);
}

// Logits changed, tokens chosen, the most likely named.
void check_sampling(const at::Device& device) {
  constexpr std::int64_t rows = 3, width = 70;
  const at::Tensor z = drawn({rows, width}, 10);
  const std::vector<std::pair<std::int32_t, float>> bias{{4, 2.5f}, {60, -1.0f}};
  const std::vector<std::uint32_t> mask{0xfffffff0u, 0xffffffffu, 0x3fu};
  const std::vector<std::pair<std::int32_t, std::int32_t>> seen{{9, 3}};
  std::vector<LogitAdjustment> asked(rows);
  asked[0].bias = bias;
  asked[1].mask = mask;
  asked[2].context = seen, asked[2].frequency = 0.5f, asked[2].presence = 0.25f;
  at::Tensor want = z.clone();
  want.select(0, 0).select(0, 4).add_(2.5);
  want.select(0, 0).select(0, 60).sub_(1.0);
  want.select(0, 1).narrow(0, 0, 4).fill_(-INFINITY);
  want.select(0, 2).select(0, 9).sub_(3 * 0.5 + 0.25);
  const at::Tensor logits = z.to(device).clone();
  autograd::adjust_logits(logits, asked);
  EXPECT_TRUE(logits.to(at::kCPU).allclose(want, 0, 1e-6));

  const auto [greedy, sure] = autograd::sample(logits, std::vector<SamplingParams>(rows));
  EXPECT_TRUE(greedy.to(at::kCPU, at::kLong).equal(want.argmax(1)));
  EXPECT_EQ(sure.abs().max().item<float>(), 0);
  std::vector<SamplingParams> hot(rows);
  for (std::size_t r = 0; r < hot.size(); ++r)
    hot[r] = {.temperature = 2, .seed = 7, .position = r};
  const auto [token, logprob] = autograd::sample(logits, hot);
  const at::Tensor chosen = token.to(at::kCPU, at::kLong).unsqueeze(1);
  const at::Tensor all = (plain(want) / 2).log_softmax(1);
  EXPECT_TRUE(plain(logprob).allclose(all.gather(1, chosen).squeeze(1), 0, 1e-5));

  const auto [ids, values] = autograd::top_logprobs(logits, 5);
  const auto [most, index] = plain(want).log_softmax(1).topk(5, 1);
  EXPECT_TRUE(ids.to(at::kCPU, at::kLong).equal(index));
  EXPECT_TRUE(plain(values).allclose(most, 0, 1e-5));
}

TEST(OtherKernelsInTorch, Sampling) {
  check_sampling(at::kCPU);
  EXPECT_THROW(autograd::sample(at::zeros({1, 3}).requires_grad_(), std::vector<SamplingParams>(1)),
               core::Error);
}

// Append, gather, copy and roll over by indexing.
void check_cache(const Where& at) {
  constexpr std::int64_t layers = 2, pages = 6, heads = 2, page = 4, dim = 16;
  const auto cache = [&] {
    return at::zeros({layers, pages, heads, page, dim},
                     at::TensorOptions(at.device).dtype(at.type));
  };
  const autograd::KvTensors kv{cache(), cache(), whole({2, 5, 0, 3, 1, -1}, {2, 3}).to(at.device)};
  const at::Tensor k = drawn({4, heads, dim}, 11, at.type), v = drawn({4, heads, dim}, 12, at.type);
  const at::Tensor places = whole({0, 3, 0, 4, 1, -1, 1, 6}, {4, 2}).to(at.device);
  autograd::kv_append(kv, 1, k.to(at.device), v.to(at.device), places);
  at::Tensor want = at::zeros({layers, pages, heads, page, dim}, at.type);
  const auto put = [&](std::int64_t id, std::int64_t slot, std::int64_t token) {
    want.select(0, 1).select(0, id).select(1, slot).copy_(k.select(0, token));
  };
  put(2, 3, 0);  // position 3 of sequence 0: page 2
  put(5, 0, 1);  // position 4: page 5
  put(1, 2, 3);  // position 6 of sequence 1: page 1
  EXPECT_TRUE(kv.k.to(at::kCPU).equal(want));
  const auto [keys, values] = autograd::kv_gather(kv, 1, places);
  const at::Tensor kept = at::tensor({1.0, 1.0, 0.0, 1.0}).view({4, 1, 1});
  EXPECT_TRUE(plain(keys).equal(plain(k) * kept));
  EXPECT_TRUE(plain(values).equal(plain(v) * kept));

  autograd::kv_copy_pages(kv, whole({5, 4}, {1, 2}).to(at.device));
  want.select(1, 4).copy_(want.select(1, 5));
  EXPECT_TRUE(kv.k.to(at::kCPU).equal(want));
  // Sequence 0 holds 9 tokens and has room, sequence 1 holds 8: its two pages are full.
  const at::Tensor taken =
      autograd::kv_rollover(kv, whole({0, 9, 3, 1, 8, 4}, {2, 3}).to(at.device));
  EXPECT_TRUE(taken.to(at::kCPU).equal(whole({0, 1}, {2})));
  EXPECT_TRUE(kv.page_table.to(at::kCPU).equal(whole({2, 5, 0, 3, 1, 4}, {2, 3})));
}

TEST(OtherKernelsInTorch, Cache) {
  check_cache(here);
  const autograd::KvTensors wrong{at::zeros({1, 2, 3}), at::zeros({1, 2, 3}), whole({0}, {1, 1})};
  EXPECT_THROW(autograd::kv_copy_pages(wrong, whole({0, 1}, {1, 2})), core::Error);
}

// AdamW beside LibTorch's.
void check_adamw(const at::Device& device) {
  const at::Tensor start = drawn({33, 70}, 13);
  const at::Tensor weight = start.to(device).clone(), first = at::zeros_like(weight),
                   second = at::zeros_like(weight);
  const at::Tensor theirs = start.clone(), m = at::zeros_like(start), v = at::zeros_like(start);
  for (std::int64_t t = 1; t <= 3; ++t) {
    const at::Tensor gradient = drawn({33, 70}, 13 + static_cast<std::uint64_t>(t));
    const at::Tensor both =
        autograd::gradient_norm({gradient.to(device), gradient.to(device)}, 2.0);
    const double norm = (gradient.to(at::kDouble).pow(2).sum() * 2).sqrt().item<double>();
    EXPECT_NEAR(both.to(at::kCPU)[0].item<double>(), norm, 1e-5 * norm);
    EXPECT_NEAR(both.to(at::kCPU)[1].item<double>(), 2.0 / norm, 1e-5 / norm);
    const AdamWStep step =
        at_step({.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .decay = 0.1f, .rate = 0.01f}, t);
    autograd::adamw(weight, gradient.to(device), first, second, step, both.narrow(0, 1, 1));
    at::_fused_adamw_({theirs}, {gradient * both.to(at::kCPU)[1]}, {m}, {v}, {},
                      {at::tensor({static_cast<float>(t)})}, 0.01, 0.9, 0.95, 0.1, 1e-8, false,
                      false);
  }
  EXPECT_LE(off(weight, theirs), 2e-6);
  EXPECT_LE(off(first, m), 1e-6);
  EXPECT_LE(off(second, v), 1e-6);
}

TEST(OtherKernelsInTorch, AdamW) {
  check_adamw(at::kCPU);
  const at::Tensor w = drawn({4}, 14).requires_grad_();
  const at::Tensor y = w.pow(2).sum();
  autograd::adamw(w.detach(), at::ones_like(w), at::zeros_like(w), at::zeros_like(w), {});
  EXPECT_THROW(y.backward(), std::exception);  // the graph still holds the old weight
}

// Muon written out, and rounding by chance.
void check_muon(const at::Device& device, double allowed) {
  const at::Tensor start = drawn({48, 32}, 15), gradient = drawn({48, 32}, 16);
  const at::Tensor weight = start.to(device).clone(), momentum = at::zeros_like(weight);
  const MuonStep step{.decay = 0.1f, .rate = 0.02f, .scale = 1.5f};
  autograd::muon(weight, gradient.to(device), momentum, step);
  const at::Tensor g = plain(gradient), next = g * 0.05, ahead = g * 0.05 + next * 0.95;
  at::Tensor x = ahead.t() / ahead.norm();
  for (int i = 0; i < step.iterations; ++i) {
    const at::Tensor gram = x.matmul(x.t());
    x = x * double{step.coefficients[0]} +
        (gram * double{step.coefficients[1]} + gram.matmul(gram) * double{step.coefficients[2]})
            .matmul(x);
  }
  const at::Tensor want = plain(start) - (x.t() * 1.5 + plain(start) * 0.1) * 0.02;
  EXPECT_LE(off(momentum, next), 1e-6);
  EXPECT_LE(off(weight, want), allowed);
}

TEST(OtherKernelsInTorch, Muon) {
  check_muon(at::kCPU, 1e-5);
}

TEST(OtherKernelsInTorch, RoundsByChance) {
  const at::Tensor x = drawn({64, 1024}, 17);
  const RoundingKey key{.seed = 3, .step = 1, .parameter = 2};
  const at::Tensor y = autograd::to_bf16_stochastic(x, key), near = x.to(at::kBFloat16);
  EXPECT_TRUE(y.equal(autograd::to_bf16_stochastic(x, key)));
  EXPECT_LE(((plain(y) - plain(x)).abs() / plain(x).abs()).max().item<double>(), 0x1p-7);
  EXPECT_FALSE(y.equal(near));
  const double drift = (plain(y) - plain(x)).mean().item<double>();
  EXPECT_LE(std::abs(drift), 6 * 0x1p-8 / std::sqrt(65536.0));  // steps of 2^-8, six deviations
}

// The same on a GPU.
using GpuOtherKernels = gpu::GpuTest;

TEST_F(GpuOtherKernels, PackedWeights) {
  check_packed(there);
}
TEST_F(GpuOtherKernels, Adapters) {
  check_adapter(there);
}
TEST_F(GpuOtherKernels, Sampling) {
  check_sampling(at::kCUDA);
}
TEST_F(GpuOtherKernels, Cache) {
  check_cache(there);
}
TEST_F(GpuOtherKernels, Optimizers) {
  check_adamw(at::kCUDA);
  check_muon(at::kCUDA, 2e-2);
  const at::Tensor x = drawn({64, 1024}, 18);
  const RoundingKey key{.seed = 5, .step = 9, .parameter = 1};
  EXPECT_TRUE(autograd::to_bf16_stochastic(x.to(at::kCUDA), key)
                  .to(at::kCPU)
                  .equal(autograd::to_bf16_stochastic(x, key)));
}

}  // namespace
}  // namespace rose::kernels
