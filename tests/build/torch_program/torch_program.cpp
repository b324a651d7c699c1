#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>

#include <cstdio>

int main() {
  const at::Tensor ones = at::full({2, 3}, 1.0f);
  std::printf("sum %g\n", at::sum(ones).item<double>());
  return 0;
}
