// Let cuBLASLt multiply.

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "labs/gpu/matmul.h"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::labs {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw core::Error(core::Code::internal,
                    std::string(what) + ": cuBLASLt status " + std::to_string(status));
}

}  // namespace

struct MatmulLibrary::State {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};
  std::array<cublasLtMatmulHeuristicResult_t, 16> found{};
  int count = 0;

  ~State() { cublasLtDestroy(handle); }
};

// Describe the product, and take proposals.
MatmulLibrary::MatmulLibrary(std::int64_t m, std::int64_t n, std::int64_t k, int most) {
  const auto state = std::make_shared<State>();
  State& s = *state;
  check(cublasLtCreate(&s.handle), "cublasLtCreate");
  check(cublasLtMatmulDescInit(&s.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescInit");
  const auto layout = [](cublasLtMatrixLayoutOpaque_t& of, std::int64_t rows, std::int64_t cols) {
    check(cublasLtMatrixLayoutInit(&of, CUDA_R_32F, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), rows),
          "cublasLtMatrixLayoutInit");
  };
  layout(s.b, n, k), layout(s.a, k, m), layout(s.c, n, m);  // transposed: columns first
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  check(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof workspace_bytes),
        "cublasLtMatmulPreferenceSetAttribute");
  check(cublasLtMatmulAlgoGetHeuristic(s.handle, &s.operation, &s.b, &s.a, &s.c, &s.c, &preference,
                                       std::min<int>(most, static_cast<int>(s.found.size())),
                                       s.found.data(), &s.count),
        "cublasLtMatmulAlgoGetHeuristic");
  state_ = state;
}

int MatmulLibrary::proposals() const {
  return state_->count;
}
int MatmulLibrary::version() {
  return static_cast<int>(cublasLtGetVersion());
}

void MatmulLibrary::launch(int proposal, const float* a, const float* b, float* c,
                           gpu::Workspace workspace, gpu::Stream stream) const {
  const float one = 1.0f, zero = 0.0f;
  State& s = *state_;
  check(cublasLtMatmul(s.handle, &s.operation, &one, b, &s.b, a, &s.a, &zero, c, &s.c, c, &s.c,
                       &s.found.at(static_cast<std::size_t>(proposal)).algo, workspace.data,
                       workspace.bytes, kernels::gpu::to_cuda(stream)),
        "cublasLtMatmul");
}

}  // namespace rose::labs
