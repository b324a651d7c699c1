// All rungs at 4,096, beside cuBLASLt.

#include <array>

#include "labs/gpu/gpu_test.h"
#include "labs/gpu/ladder.h"
#include "labs/gpu/matmul.h"

namespace {

using namespace rose::labs;
constexpr std::int64_t side = 4096;

struct Arrays {
  std::array<gpu::Buffer, 2> a, b, c;
  gpu::Buffer workspace{MatmulLibrary::workspace_bytes};

  Arrays() {
    for (std::size_t i : {0, 1}) {
      for (gpu::Buffer* one : {&a[i], &b[i], &c[i]}) *one = gpu::Buffer(side * side * 4);
      gpu::fill_random(a[i], rose::kernels::DType::f32, 1 + static_cast<std::uint32_t>(i));
      gpu::fill_random(b[i], rose::kernels::DType::f32, 11 + static_cast<std::uint32_t>(i));
    }
  }
  gpu::Launch of(Matmul* matmul) {
    return [this, matmul](int i, gpu::Stream s) {
      const auto at = static_cast<std::size_t>(i);
      matmul(a[at].as<float>(), b[at].as<float>(), c[at].as<float>(), side, side, side, s);
    };
  }
};

// Compare 64 outputs with the chain.
int differing(const gpu::Buffer& a, const gpu::Buffer& b, const gpu::Buffer& c) {
  const std::vector<float> x = a.values<float>(), y = b.values<float>(), z = c.values<float>();
  int differ = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t row = i * 2654435761u % side, column = (i * 40503u + 7) % side;
    float sum = 0;
    for (std::size_t k = 0; k < side; ++k)
      sum = std::fma(x[row * side + k], y[k * side + column], sum);
    differ += z[row * side + column] != sum ? 1 : 0;
  }
  return differ;
}

// Choose the best tile and the library's best proposal.
Contestant best_tile(Arrays& arrays, Ladder& ladder) {
  Contestant best{"tuned", "", {}};
  double most = 0;
  for (const auto& rung : matmul_tiles()) {
    const Contestant one{rung.name, rung.idea, arrays.of(rung.launch)};
    const double rate = rate_of(ladder, one, 5);
    std::fprintf(stderr, "    %-20s %8.2f %s\n", rung.name, rate, ladder.unit.c_str());
    if (rate > most) most = rate, best.launch = one.launch, best.idea = rung.name;
  }
  return best;
}

Contestant best_proposal(Arrays& arrays, const MatmulLibrary& library, Ladder& ladder) {
  Contestant best{"cuBLASLt", "fp32 without TF32, the fastest of its proposals", {}};
  double most = 0;
  for (int i = 0; i < library.proposals(); ++i) {
    const Contestant one{"", "", [&arrays, &library, i](int copy, gpu::Stream s) {
                           const auto at = static_cast<std::size_t>(copy);
                           library.launch(i, arrays.a[at].as<float>(), arrays.b[at].as<float>(),
                                          arrays.c[at].as<float>(), arrays.workspace.workspace(),
                                          s);
                         }};
    const double rate = rate_of(ladder, one, 5);
    if (rate > most) most = rate, best.launch = one.launch;
  }
  return best;
}

}  // namespace

// Time them all.
int main(int argc, char** argv) {
  Arrays arrays;
  const MatmulLibrary library(side, side, side, 16);
  Ladder ladder{.unit = "TFLOP/s",
                .work = 2e-3 * static_cast<double>(side) * side * side * 1e-9,
                .copies = 2,
                .limit_name = "fp32 lanes at the clock under load",
                .limit = 1,
                .against = "a chain of fma on the CPU, 64 outputs of every rung, bits that differ",
                .error = 0,
                .bound = 0,
                .rungs = {},
                .library = {},
                .version = std::to_string(MatmulLibrary::version())};
  for (const auto& rung : matmul_ladder()) {
    arrays.c[0].poison();
    arrays.of(rung.launch)(0, {});
    gpu::synchronize({});
    if (const int differ = differing(arrays.a[0], arrays.b[0], arrays.c[0]); differ > 0)
      return std::fprintf(stderr, "%s: %d outputs differ\n", rung.name, differ), 1;
    ladder.rungs.push_back({rung.name, rung.idea, arrays.of(rung.launch)});
  }
  ladder.library = best_proposal(arrays, library, ladder);
  ladder.rungs.push_back(best_tile(arrays, ladder));
  const int clock = gpu::read_clocks().sm_mhz;
  constexpr int boost = 1980;
  ladder.limit = 256e-6 * gpu::device_info().multiprocessors * (clock > 0 ? clock : boost);
  return ladder_bench(argc, argv, ladder);
}
