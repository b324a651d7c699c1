// muon_tool ROWS COLS STEPS LIKE_ADAMW OUT: takes steps of Muon from random weights along random gradients, and writes as floats the
// weights before, the gradient of each step, and the weights after.
#include <cstdlib>
#include <fstream>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/muon.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (argc != 6) return 2;
  const std::int64_t rows = std::atoll(argv[1]), cols = std::atoll(argv[2]);
  const int steps = std::atoi(argv[3]);
  const auto kind =
      std::atoi(argv[4]) != 0 ? kernels::MuonScale::like_adamw : kernels::MuonScale::shape;
  std::ofstream out(argv[5], std::ios::binary);
  const auto write = [&](std::span<const float> values) {
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size_bytes()));
  };
  core::Rng rng(7);
  std::vector<float> w(static_cast<std::size_t>(rows * cols)), g(w.size()), m(w.size());
  for (float& x : w) x = rng.normal();
  write(w);
  const kernels::MuonStep step{
      .decay = 0.1f, .rate = 0.02f, .scale = kernels::muon_scale(kind, rows, cols)};
  kernels::MuonScratch scratch;
  for (int i = 0; i < steps; ++i) {
    for (float& x : g) x = rng.normal() * 0.3f;
    write(g);
    kernels::muon(w, g, 1.0f, m, rows, cols, step, core::default_pool(), scratch);
  }
  write(w);
  return out.good() ? 0 : 1;
}
