// Print what the kernels reach on this machine.

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_backward.h"
#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/softmax.h"

namespace rose::app {

namespace {

namespace gpu = kernels::gpu;
using kernels::DType;

// Name some layers of real models.
struct Layer {
  const char* name;
  std::int64_t m, n, k;
};
constexpr std::array layers = {
    Layer{"large product", 8192, 8192, 8192},
    Layer{"GPT-2, feed-forward up", 16384, 3072, 768},
    Layer{"GPT-2, feed-forward down", 16384, 768, 3072},
    Layer{"0.6B, q k v, one row", 1, 4096, 1024},
    Layer{"0.6B, down, 16 rows", 16, 1024, 3072},
    Layer{"0.6B, gate and up, 64 rows", 64, 6144, 1024},
    Layer{"0.6B, head, 32 rows", 32, 151936, 1024},
    Layer{"8B, down, 16 rows", 16, 4096, 14336},
    Layer{"8B, gate and up, 128 rows", 128, 28672, 4096},
    Layer{"8B, down, 4096 rows", 4096, 4096, 14336},
};

// Fill arrays that no cache holds.

/// What is timed: what it must compute and move, and one launch of it.
struct Operation {
  std::string name;
  gpu::Cost cost;
  gpu::Launch launch;
};

constexpr std::int64_t rows = 16'384, cols = 4096;
constexpr double elements = static_cast<double>(rows * cols);

struct Arrays {
  std::array<gpu::Buffer, 8> of;
  gpu::Buffer weight{2 * cols}, sums{sizeof(float) * rows * 16}, zeros{sizeof(int) * rows},
      wide{sizeof(float) * rows * cols}, room{gpu::norm_backward_workspace(rows, cols)};

  Arrays() {
    std::uint32_t seed = 0;
    for (gpu::Buffer& buffer : of) {
      buffer = gpu::Buffer(static_cast<std::size_t>(2 * rows * cols));
      gpu::fill_random(buffer, DType::bf16, ++seed);
    }
    gpu::fill_random(weight, DType::bf16, ++seed);
    gpu::fill_random(sums, DType::f32, ++seed);
    gpu::fill_random(wide, DType::f32, ++seed);
    gpu::fill_bytes(zeros.data(), 0, zeros.bytes(), {});
  }
  /// Array i as tokens of some width.
  gpu::Matrix at(std::size_t i, std::int64_t tokens = rows, std::int64_t width = cols) const {
    return {.data = of[i].data(), .dtype = DType::bf16, .rows = tokens, .cols = width};
  }
  gpu::Matrix logits() const {
    return {.data = wide.data(), .dtype = DType::f32, .rows = rows, .cols = cols};
  }
};

// List the operations on rows.
std::vector<Operation> row_operations(const Arrays& a) {
  const gpu::Matrix w{.data = a.weight.data(), .dtype = DType::bf16, .rows = 1, .cols = cols};
  constexpr float eps = 1e-6f;
  const auto moves = [](double arrays) { return gpu::Cost{.bytes = 2 * arrays * elements}; };
  return {
      {"SwiGLU", moves(3),
       [&a](int, gpu::Stream s) { silu_multiply(a.at(0), a.at(1), a.at(2), s); }},
      {"residual and RMSNorm", moves(4),
       [&a, w](int, gpu::Stream s) {
         add_rmsnorm(a.at(0), a.at(1), w, eps, a.at(2), a.at(3), nullptr, s);
       }},
      {"RMSNorm, backward", moves(3),
       [&a, w](int, gpu::Stream s) {
         rmsnorm_backward(a.at(0), w, a.sums.as<float>(), a.at(1), {}, a.at(2),
                          a.sums.as<float>() + rows, a.room.workspace(), s);
       }},
      {"softmax", moves(2), [&a](int, gpu::Stream s) { softmax(a.at(0), a.at(1), s); }},
      {"cross-entropy with its gradient",
       {.bytes = (4 + 2) * elements},
       [&a](int, gpu::Stream s) {
         cross_entropy(a.logits(), a.zeros.as<std::int32_t>(), 1.0f, a.at(2), nullptr, nullptr, s);
       }},
  };
}

// List attention over packed rows.
struct AttentionCase {
  const char* name;
  std::int64_t batch, length, heads, head_dim;
  bool backward;
};
constexpr std::array attention_cases = {
    AttentionCase{"attention, 16k, heads of 128", 1, 16'384, 16, 128, false},
    AttentionCase{"attention, 4k, heads of 64", 4, 4096, 16, 64, false},
    AttentionCase{"attention, 8k, heads of 128, backward", 2, 8192, 16, 128, true},
};

/// Workspaces are kept in `rooms` until everything is timed.
Operation attention_operation(const Arrays& a, const AttentionCase& c,
                              std::vector<gpu::Buffer>& rooms) {
  const kernels::AttentionShape shape{c.heads, c.heads, c.head_dim,
                                      1 / std::sqrt(static_cast<float>(c.head_dim))};
  std::vector<std::int32_t> offsets;
  for (std::int64_t i = 0; i <= c.batch; ++i)
    offsets.push_back(static_cast<std::int32_t>(i * c.length));
  const auto at = [&a, tokens = c.batch * c.length, width = c.heads * c.head_dim](std::size_t i) {
    return a.at(i, tokens, width);
  };
  const auto forward = gpu::plan_attention(shape, offsets);
  const auto back = gpu::plan_attention_backward(shape, offsets);
  const std::size_t bytes = c.backward ? back.workspace_bytes() : forward.workspace_bytes();
  const gpu::Workspace room = rooms.emplace_back(bytes).workspace();
  c.backward ? gpu::upload(back, room, {}) : gpu::upload(forward, room, {});
  gpu::synchronize({});
  // Two products forward, five back, half of each below the diagonal.
  const double products = c.backward ? 5 : 2, n = static_cast<double>(c.length);
  const double flops = products * static_cast<double>(c.batch * c.heads * c.head_dim) * n * n;
  float* const lse = a.sums.as<float>();
  if (c.backward) {
    return {c.name, {.flops = flops}, [=](int, gpu::Stream s) {
              gpu::attention_backward(back, {at(0), at(1), at(2), at(3), lse}, at(4), at(5), at(6),
                                      at(7), room, s);
            }};
  }
  return {c.name, {.flops = flops}, [=](int, gpu::Stream s) {
            gpu::attention(forward, at(0), at(1), at(2), at(3), lse, room, s);
          }};
}

// List decoding from pages.
Operation decode_operation(const Arrays& a, std::vector<gpu::Buffer>& kept) {
  constexpr std::int64_t sequences = 64, length = 4096, kv_heads = 8, heads = 32, dim = 128,
                         page = 16, pages = sequences * length / page;
  constexpr auto bytes = static_cast<std::size_t>(2 * sequences * length * kv_heads * dim);
  std::vector<std::int32_t> order(pages), offsets(sequences + 1);
  std::iota(order.begin(), order.end(), 0);
  std::iota(offsets.begin(), offsets.end(), 0);
  core::Rng rng(1);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[rng.below(static_cast<std::uint32_t>(i))]);
  const std::vector<std::int32_t> lengths(sequences, static_cast<std::int32_t>(length));
  const auto plan = gpu::plan_attention({heads, kv_heads, dim, 0.088f}, offsets, lengths);
  const auto keep = [&kept](gpu::Buffer buffer) {
    kept.push_back(std::move(buffer));
    return kept.back().data();
  };
  gpu::Buffer k(bytes), v(bytes), room(plan.workspace_bytes());
  gpu::fill_random(k, DType::bf16, 1);
  gpu::fill_random(v, DType::bf16, 2);
  gpu::upload(plan, room.workspace(), {});
  gpu::synchronize({});
  const gpu::Workspace workspace = room.workspace();
  const kernels::KvView view{.k = keep(std::move(k)),
                             .v = keep(std::move(v)),
                             .dtype = DType::bf16,
                             .layers = 1,
                             .kv_heads = kv_heads,
                             .head_dim = dim,
                             .page_size = page,
                             .pages = pages,
                             .page_table = static_cast<const std::int32_t*>(
                                 keep(gpu::Buffer::of(std::span<const std::int32_t>(order)))),
                             .table_stride = length / page};
  keep(std::move(room));
  return {"decode, 64 sequences of 4k",
          {.bytes = 2.0 * static_cast<double>(bytes)},
          [=, &a](int, gpu::Stream s) {
            gpu::attention(plan, a.at(0, sequences, heads * dim), view, 0,
                           a.at(1, sequences, heads * dim), nullptr, workspace, s);
          }};
}

// Measure, and print beside the roofline.
void print_line(const std::string& name, double us, const gpu::Cost& cost,
                const gpu::Ceilings& ceilings, const std::string& how) {
  const auto or_blank = [](const char* form, double x, std::size_t width) {
    return x > 0 ? fmt::format(fmt::runtime(form), x) : std::string(width, ' ');
  };
  constexpr std::size_t bytes_width = 11, flops_width = 13;
  print(fmt::format("{:38} {:9.2f} us {} {} {:4.0f} % of the roofline  {}\n", name, us,
                    or_blank("{:6.2f} TB/s", 1e-6 * cost.bytes / us, bytes_width),
                    or_blank("{:5.0f} Tflop/s", 1e-6 * cost.flops / us, flops_width),
                    100 * gpu::floor_us(cost, ceilings) / us, how));
}

void bench_layers(gpu::Ceilings& ceilings) {
  constexpr int samples = 11;
  for (const Layer& layer : layers) {
    const gpu::LinearPlan plan = gpu::measure_linear({.m = layer.m, .n = layer.n, .k = layer.k});
    const double us =
        gpu::time_linear(plan.shape, std::span(&plan, 1), samples).front().timing.median_us;
    const gpu::Cost cost =
        gpu::linear_cost(static_cast<double>(layer.m), static_cast<double>(layer.n),
                         static_cast<double>(layer.k), 2, 2);
    ceilings.flops = std::max(ceilings.flops, 1e6 * cost.flops / us);
    print_line(layer.name, us, cost, ceilings, plan.describe());
  }
}

void bench_kernels() {
  if (!gpu::available()) gpu::no_cuda("benching kernels");
  const gpu::DeviceInfo device = gpu::device_info();
  const gpu::Bandwidth bandwidth = gpu::measure_bandwidth();
  print(fmt::format("{}: read {:.2f}, copy {:.2f}, write {:.2f} TB/s\n", device.name,
                    1e-12 * bandwidth.read, 1e-12 * bandwidth.copy, 1e-12 * bandwidth.write));
  const auto print_clocks = [](const char* when) {
    print(fmt::format("{}: {}\n", when, gpu::describe(gpu::read_clocks())));
  };
  print_clocks("after sweeps of memory");
  gpu::Ceilings ceilings{.flops = 0, .bytes = bandwidth.read};
  bench_layers(ceilings);
  print_clocks("after products");
  const Arrays arrays;
  std::vector<gpu::Buffer> kept;
  const auto time = [&](const Operation& operation, double bytes) {
    constexpr gpu::TimingOptions options{.rounds = 5, .samples = 5, .warmup = 2};
    const double us = gpu::time_launches(operation.launch, options).median_us;
    print_line(operation.name, us, operation.cost, {.flops = ceilings.flops, .bytes = bytes}, "");
  };
  for (const Operation& operation : row_operations(arrays)) time(operation, bandwidth.copy);
  for (const AttentionCase& one : attention_cases)
    time(attention_operation(arrays, one, kept), bandwidth.read);
  time(decode_operation(arrays, kept), bandwidth.read);
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine");
  command->require_subcommand(1);
  command->add_subcommand("kernels", "The GPU's operations, beside their roofline")
      ->callback(bench_kernels);
}

}  // namespace rose::app
