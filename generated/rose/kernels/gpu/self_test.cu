// The plain loop: one warp for 16 by 8 outputs.

#include <algorithm>
#include <array>
#include <cmath>

#include "rose/core/rng.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/hopper.cuh"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear_paths.h"
#include "rose/kernels/gpu/self_test.h"
#include "rose/kernels/tensor_core.h"

namespace rose::kernels::gpu {

namespace {

using Element = __nv_bfloat16;

/// K is a multiple of 16, N of 8; rows beyond M are read as the last one and not stored.
__global__ void plain_loop(const Element* x, const Element* w, float* y, int m, int n, int k) {
  const int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4,
            column = blockIdx.x * 8 + lane / 4;
  const auto two = [k](const Element* from, int r, int at) {
    return *reinterpret_cast<const std::uint32_t*>(from + static_cast<std::int64_t>(r) * k + at);
  };
  const int upper = min(row, m - 1), lower = min(row + 8, m - 1);
  float sum[4] = {};
  for (int step = 0; step < k; step += 16) {
    const int at = step + lane % 4 * 2;
    const std::uint32_t a[4] = {two(x, upper, at), two(x, lower, at), two(x, upper, at + 8),
                                two(x, lower, at + 8)};
    mma_16x8x16<Element>(sum, a, two(w, column, at), two(w, column, at + 8));
  }
  const int c = blockIdx.x * 8 + lane % 4 * 2;
  for (int e = 0; e < 4; ++e) {
    const int r = row + e / 2 * 8;
    if (r < m) y[static_cast<std::int64_t>(r) * n + c + e % 2] = sum[e];
  }
}

// The same loop with wgmma, 64 by 8 or 64 by 64 outputs.
__device__ __forceinline__ std::uint64_t tile_descriptor(const void* tiles) {
  constexpr std::uint64_t along_k = 128, along_rows = 256;  // bytes from one 8 x 8 tile to the next
  return ((shared_address(tiles) & 0x3ffff) >> 4) | along_k >> 4 << 16 | along_rows >> 4 << 32;
}

/// y[64, N] of x[64, K] and w[N, K], by one warpgroup.
template <int N>
__global__ void __launch_bounds__(128)
    wgmma_loop(const Element* x, const Element* w, float* y, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ __align__(128) Element x_tiles[64 * 16];
  __shared__ __align__(128) Element w_tiles[N * 16];
  const int thread = threadIdx.x;
  const auto place = [](int r, int c) { return (r / 8 * 2 + c / 8) * 64 + r % 8 * 8 + c % 8; };
  float sum[N / 2] = {};
  for (int step = 0; step < k; step += 16) {
    for (int i = thread; i < 64 * 16; i += 128)
      x_tiles[place(i / 16, i % 16)] = x[i / 16 * k + step + i % 16];
    for (int i = thread; i < N * 16; i += 128)
      w_tiles[place(i / 16, i % 16)] = w[i / 16 * k + step + i % 16];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    hopper::product_fence();
    hopper::product(sum, tile_descriptor(x_tiles), tile_descriptor(w_tiles));
    hopper::product_commit();
    hopper::product_wait<0>();
    __syncthreads();
  }
  const int lane = thread % 32;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const int r = thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8, c = i / 4 * 8 + lane % 4 * 2 + i % 2;
    y[r * N + c] = sum[i];
  }
#endif
}

// Four kinds of numbers, and what differs.
__global__ void count_differing(const std::uint32_t* a, const std::uint32_t* b, std::int64_t count,
                                unsigned long long* differing) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count && a[i] != b[i]) atomicAdd(differing, 1ull);
}

std::int64_t differing(const Buffer& a, const Buffer& b) {
  const unsigned long long none = 0;
  const Buffer counter = Buffer::of(std::span(&none, 1));
  const auto count = static_cast<std::int64_t>(a.bytes() / sizeof(float));
  count_differing<<<static_cast<unsigned>(ceil_div(count, 256)), 256>>>(
      a.as<std::uint32_t>(), b.as<std::uint32_t>(), count, counter.as<unsigned long long>());
  ROSE_LAUNCH_CHECK("count_differing");
  synchronize({});
  return static_cast<std::int64_t>(counter.values<unsigned long long>().front());
}

constexpr std::array<const char*, 5> kinds{"normal", "shifted", "wide", "tiny", "uniform"};
constexpr std::size_t uniform = kinds.size() - 1;

/// Host values of one of the kinds, as bf16.
std::vector<bf16> draw(std::int64_t count, std::size_t kind, std::uint64_t seed) {
  core::Rng rng(seed);
  std::vector<bf16> values(static_cast<std::size_t>(count));
  for (bf16& value : values) {
    const float x = rng.normal();
    constexpr std::uint32_t exponents = 24;
    switch (kind) {
      case 0: value = to_bf16(x); break;
      case 1: value = to_bf16(x + 3); break;
      case 2: value = to_bf16(std::ldexp(x, static_cast<int>(rng.below(exponents)) - 12)); break;
      default: value = to_bf16(1e-3f * std::fabs(x));
    }
  }
  return values;
}

/// A product's inputs and the plain loop's result.
struct Sample {
  std::int64_t m, n, k;
  std::size_t kind;
  std::vector<bf16> x_host, w_host;
  Buffer x, w, y, expected;

  /// Large ones, drawn on the device.
  Sample(std::int64_t rows, std::int64_t columns, std::int64_t terms)
      : m(rows),
        n(columns),
        k(terms),
        kind(uniform),
        x(static_cast<std::size_t>(m * k) * sizeof(bf16)),
        w(static_cast<std::size_t>(n * k) * sizeof(bf16)),
        y(static_cast<std::size_t>(m * n) * sizeof(float)),
        expected(y.bytes()) {
    fill_random(x, DType::bf16, 1);
    fill_random(w, DType::bf16, 2);
    compute_expected();
  }

  Sample(std::int64_t rows, std::int64_t columns, std::int64_t terms, std::size_t which)
      : m(rows),
        n(columns),
        k(terms),
        kind(which),
        x_host(draw(m * k, which, 1)),
        w_host(draw(n * k, which, 2)),
        x(Buffer::of(std::span<const bf16>(x_host))),
        w(Buffer::of(std::span<const bf16>(w_host))),
        y(static_cast<std::size_t>(m * n) * sizeof(float)),
        expected(y.bytes()) {
    compute_expected();
  }

  void compute_expected() {
    expected.poison();
    plain_loop<<<dim3(static_cast<unsigned>(n / 8), static_cast<unsigned>(ceil_div(m, 16))), 32>>>(
        x.as<Element>(), w.as<Element>(), expected.as<float>(), static_cast<int>(m),
        static_cast<int>(n), static_cast<int>(k));
    ROSE_LAUNCH_CHECK("plain_loop");
  }

  std::string shape() const {
    return "M " + std::to_string(m) + ", N " + std::to_string(n) + ", K " + std::to_string(k) +
           ", " + kinds[kind];
  }
  BitCase compare(const char* path) const { return {path, shape(), m * n, differing(y, expected)}; }
};

// Run every path on a sample.
void run_instructions(const Sample& sample, std::vector<BitCase>& cases) {
  if (!hopper::present()) return;
  Buffer& y = const_cast<Sample&>(sample).y;
  const auto run = [&](auto kernel, const char* name) {
    y.poison();
    kernel<<<1, 128>>>(sample.x.as<Element>(), sample.w.as<Element>(), y.as<float>(),
                       static_cast<int>(sample.k));
    ROSE_LAUNCH_CHECK(name);
    cases.push_back(sample.compare(name));
  };
  if (sample.n == 64) run(wgmma_loop<64>, "wgmma n64");
  if (sample.n == 8) run(wgmma_loop<8>, "wgmma n8");
}

/// The model of a step that fits Hopper counts; others are tried for the record.
void run_emulation(const Sample& sample, bool others, SelfTest& test) {
  const std::vector<float> expected = sample.expected.values<float>();
  const auto floats = [](const std::vector<bf16>& from) {
    std::vector<float> to(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](bf16 v) { return to_float(v); });
    return to;
  };
  const std::vector<float> x = floats(sample.x_host), w = floats(sample.w_host);
  const auto k = static_cast<std::size_t>(sample.k), n = static_cast<std::size_t>(sample.n);
  const auto compare = [&](const TensorCore& model) {
    BitCase result{"emulation of " + std::to_string(model.terms) + " terms with " +
                       std::to_string(model.extra_bits) + " extra bits",
                   sample.shape(), 0, 0};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ++result.outputs;
      result.differing += expected[i] != tensor_core_dot(std::span(x).subspan(i / n * k, k),
                                                         std::span(w).subspan(i % n * k, k), model);
    }
    return result;
  };
  if (hopper::present()) test.cases.push_back(compare({}));
  if (!others) return;
  for (const TensorCore& model : {TensorCore{16, 0}, TensorCore{16, 1}, TensorCore{16, 3},
                                  TensorCore{8, 1}, TensorCore{8, 2}}) {
    test.emulated.push_back(compare(model));
  }
}

void run_plan(const Sample& sample, const LinearPlan& plan, std::vector<BitCase>& cases) {
  Buffer& y = const_cast<Sample&>(sample).y;
  const Buffer workspace(plan.workspace_bytes);
  y.poison();
  linear(plan,
         {.x = {sample.x.data(), DType::bf16, sample.m, sample.k},
          .w = {sample.w.data(), DType::bf16, sample.n, sample.k},
          .y = {y.data(), DType::f32, sample.m, sample.n}},
         workspace.workspace(), {});
  cases.push_back(sample.compare(plan.describe().c_str()));
}

void run_plans(const Sample& sample, SelfTest& test) {
  const LinearShape shape{.m = sample.m, .n = sample.n, .k = sample.k, .out = DType::f32};
  for (const LinearPlan& plan : linear_candidates(shape, false)) run_plan(sample, plan, test.cases);
  constexpr int most = 8;
  for (const LinearPlan& plan : linear_paths::library_plans(shape, most)) {
    if (!linear_paths::library_trusted(plan)) run_plan(sample, plan, test.others);
  }
}

}  // namespace

// The brief and the full test.
SelfTest self_test(Extent extent) {
  if (!available()) no_cuda("the self-test");
  SelfTest test;
  const bool full = extent == Extent::full;
  const std::vector<std::int64_t> depths =
      full ? std::vector<std::int64_t>{16, 64, 1024, 4096, 16384} : std::vector<std::int64_t>{1024};
  for (std::size_t kind = 0; kind < uniform; ++kind) {
    for (const std::int64_t k : depths) {
      for (const std::int64_t n : {8, 64}) {
        const Sample sample(64, n, k, kind);
        run_instructions(sample, test.cases);
        constexpr std::int64_t few = 1024;  // terms: the emulation is slow
        if (n == 8 && k <= few) run_emulation(sample, full, test);
        run_plans(sample, test);
      }
    }
  }
  if (!full) return test;
  // [K, N] of the layers of GPT-2 124M, Qwen3-0.6B and an 8B model.
  constexpr std::array<std::array<std::int64_t, 2>, 13> layers{{{768, 768},
                                                                {768, 2304},
                                                                {768, 3072},
                                                                {3072, 768},
                                                                {768, 50304},
                                                                {1024, 2048},
                                                                {1024, 4096},
                                                                {1024, 6144},
                                                                {2048, 1024},
                                                                {3072, 1024},
                                                                {4096, 4096},
                                                                {4096, 14336},
                                                                {14336, 4096}}};
  for (const auto& [k, n] : layers) {
    for (const std::int64_t m : {1, 8, 16, 33, 64, 128, 256, 1024, 4096}) {
      constexpr std::int64_t most = std::int64_t{1} << 26;
      const LinearShape shape{.m = m, .n = n, .k = k, .out = DType::f32};
      if (m * n <= most && (m <= 64 || n <= 4096)) run_plans(Sample(m, n, k), test);
      const std::vector<LinearPlan> own = linear_paths::library_plans(shape, 1, true);
      const int pieces = own.empty() ? 0 : linear_paths::library_splits(own.front());
      if (pieces > 1) test.splits.push_back({m, n, k, pieces});
    }
  }
  return test;
}

}  // namespace rose::kernels::gpu
