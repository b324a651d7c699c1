// The plain loop: one warp for 16 by 8 outputs.

#include <algorithm>
#include <array>
#include <cmath>

#include "rose/core/rng.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/cuda.cuh"
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

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ void wgmma(float (&d)[4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void wgmma(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}
#endif

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
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    wgmma(sum, tile_descriptor(x_tiles), tile_descriptor(w_tiles));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
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
  int device = 0, major = 0;
  ROSE_CUDA_CHECK(cudaGetDevice(&device));
  ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major != 9) return;
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

void run_emulation(const Sample& sample, std::vector<BitCase>& cases) {
  const std::vector<float> expected = sample.expected.values<float>();
  const auto floats = [](const std::vector<bf16>& from) {
    std::vector<float> to(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](bf16 v) { return to_float(v); });
    return to;
  };
  const std::vector<float> x = floats(sample.x_host), w = floats(sample.w_host);
  const auto k = static_cast<std::size_t>(sample.k);
  for (const TensorCore& model : {TensorCore{16, 2}, TensorCore{16, 1}, TensorCore{16, 3},
                                  TensorCore{8, 2}, TensorCore{8, 1}, TensorCore{16, 0}}) {
    BitCase result{
        std::to_string(model.terms) + " terms, " + std::to_string(model.extra_bits) + " extra bits",
        sample.shape(), 0, 0};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(sample.n),
                        column = i % static_cast<std::size_t>(sample.n);
      ++result.outputs;
      result.differing +=
          expected[i] != tensor_core_dot(std::span(x).subspan(row * k, k),
                                         std::span(w).subspan(column * k, k), model);
    }
    cases.push_back(result);
  }
}

void run_plans(const Sample& sample, std::vector<BitCase>& cases) {
  const LinearShape shape{.m = sample.m, .n = sample.n, .k = sample.k, .out = DType::f32};
  Buffer& y = const_cast<Sample&>(sample).y;
  for (const LinearPlan& plan : linear_candidates(shape, false)) {
    const Buffer workspace(plan.workspace_bytes);
    y.poison();
    linear(plan,
           {.x = {sample.x.data(), DType::bf16, sample.m, sample.k},
            .w = {sample.w.data(), DType::bf16, sample.n, sample.k},
            .y = {y.data(), DType::f32, sample.m, sample.n}},
           workspace.workspace(), {});
    cases.push_back(sample.compare(plan.describe().c_str()));
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
        if (full && n == 8 && k <= few) run_emulation(sample, test.emulated);
        run_plans(sample, test.cases);
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
      if (m * n <= most && (m <= 64 || n <= 4096)) run_plans(Sample(m, n, k), test.cases);
      const std::vector<LinearPlan> own = linear_paths::library_plans(shape, 1, true);
      const int pieces = own.empty() ? 0 : linear_paths::library_splits(own.front());
      if (pieces > 1) test.splits.push_back({m, n, k, pieces});
    }
  }
  return test;
}

}  // namespace rose::kernels::gpu
