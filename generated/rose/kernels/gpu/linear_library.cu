// Ask cuBLASLt for algorithms that do not split K.

#include <cublasLt.h>

#include <algorithm>
#include <cstring>

#include "rose/kernels/gpu/linear.cuh"

namespace rose::kernels::gpu::linear_paths {

namespace {

void check_library(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw core::Error(core::Code::internal,
                    std::string(what) + ": cuBLASLt status " + std::to_string(status));
}

/// One for the process: it is safe to share, and costs memory.
cublasLtHandle_t library() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created = nullptr;
    check_library(cublasLtCreate(&created), "cublasLtCreate");
    return created;
  }();
  return handle;
}

cudaDataType_t library_type(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

/// The bias is the library's to add when it stores the rounded result; else `finish` does it.
bool library_adds_bias(const LinearShape& shape) {
  return shape.bias && shape.out == shape.in;
}

/// Whether something remains to be done after the library's product, and whether that needs a place of its own.
bool finishes(const LinearShape& shape) {
  return shape.activation != Activation::none || shape.scaled || shape.residual ||
         (shape.bias && !library_adds_bias(shape));
}
bool finishes_elsewhere(const LinearShape& shape) {
  return shape.activation == Activation::swiglu || shape.residual;
}

// Describe the product to the library.
struct Problem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t w, x, y;

  Problem(const LinearShape& shape, std::int64_t w_stride, std::int64_t x_stride,
          std::int64_t y_stride, const void* bias) {
    const cudaDataType_t in = library_type(shape.in), out = library_type(shape.out);
    check_library(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (library_adds_bias(shape)) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, in);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    const auto n = static_cast<std::uint64_t>(shape.weight_rows()),
               m = static_cast<std::uint64_t>(shape.m);
    const auto k = static_cast<std::uint64_t>(shape.k);
    check_library(cublasLtMatrixLayoutInit(&w, in, k, n, w_stride), "cublasLtMatrixLayoutInit");
    check_library(cublasLtMatrixLayoutInit(&x, in, k, m, x_stride), "cublasLtMatrixLayoutInit");
    check_library(cublasLtMatrixLayoutInit(&y, out, n, m, y_stride), "cublasLtMatrixLayoutInit");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_library(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value),
                  "cublasLtMatmulDescSetAttribute");
  }
};

template <class T>
T configured(const cublasLtMatmulAlgo_t& algorithm,
             cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written) !=
      CUBLAS_STATUS_SUCCESS) {
    return T{};
  }
  return value;
}

cublasLtMatmulAlgo_t algorithm_of(const LinearPlan& plan) {
  cublasLtMatmulAlgo_t algorithm;
  static_assert(sizeof algorithm.data == sizeof plan.algorithm);
  std::memcpy(algorithm.data, plan.algorithm.data(), sizeof algorithm.data);
  return algorithm;
}

constexpr std::size_t workspace_unit = 256;
std::size_t product_bytes(const LinearShape& shape) {
  if (!finishes_elsewhere(shape)) return 0;
  const std::size_t bytes = static_cast<std::size_t>(shape.m * shape.weight_rows()) *
                            static_cast<std::size_t>(info(shape.out).block_bytes);
  return (bytes + workspace_unit - 1) / workspace_unit * workspace_unit;
}

}  // namespace

int library_splits(const LinearPlan& plan) {
  return configured<std::int32_t>(algorithm_of(plan), CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

bool library_trusted(const LinearPlan& plan) {
  constexpr std::int32_t warpgroup_kernels = 66;  // as the library numbers them
  return configured<std::int32_t>(algorithm_of(plan), CUBLASLT_ALGO_CONFIG_ID) == warpgroup_kernels;
}

int library_version() {
  return static_cast<int>(cublasLtGetVersion());
}

// Turn proposals into plans.
std::vector<LinearPlan> library_plans(const LinearShape& shape, int most, bool any) {
  const std::int64_t product_stride = shape.weight_rows();
  alignas(256) static const std::byte placeholder{};  // the search looks at a bias's alignment only
  Problem problem(shape, shape.k, shape.k, product_stride, &placeholder);
  cublasLtMatmulPreferenceOpaque_t preference;
  check_library(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const std::size_t allowed = std::size_t{32} << 20;
  check_library(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &allowed, sizeof allowed),
      "workspace preference");
  if (!any) {
    const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    check_library(cublasLtMatmulPreferenceSetAttribute(
                      &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof none),
                  "reduction preference");
  }
  const std::uint32_t element = static_cast<std::uint32_t>(info(shape.out).block_bytes);
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    const std::uint32_t alignment = product_stride * element % 16 == 0 ? 16 : element;
    check_library(
        cublasLtMatmulPreferenceSetAttribute(&preference, which, &alignment, sizeof alignment),
        "alignment");
  }
  const std::uint32_t wide = 16;
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES}) {
    check_library(cublasLtMatmulPreferenceSetAttribute(&preference, which, &wide, sizeof wide),
                  "alignment");
  }
  std::array<cublasLtMatmulHeuristicResult_t, 32> proposals{};
  const int asked = std::min(2 * most, static_cast<int>(proposals.size()));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library(), &problem.operation, &problem.w, &problem.x, &problem.y, &problem.y, &preference,
      asked, proposals.data(), &found);
  std::vector<LinearPlan> plans;
  if (status != CUBLAS_STATUS_SUCCESS) return plans;  // no algorithm: another path computes it
  for (int i = 0; i < found && static_cast<int>(plans.size()) < most; ++i) {
    const cublasLtMatmulHeuristicResult_t& proposal = proposals[static_cast<std::size_t>(i)];
    if (proposal.state != CUBLAS_STATUS_SUCCESS) continue;
    LinearPlan plan{.shape = shape, .path = LinearPath::library};
    std::memcpy(plan.algorithm.data(), proposal.algo.data, sizeof plan.algorithm);
    const auto reduction =
        configured<std::uint32_t>(proposal.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    if (!any && (library_splits(plan) > 1 || reduction != CUBLASLT_REDUCTION_SCHEME_NONE)) continue;
    plan.library_workspace = proposal.workspaceSize;
    plan.workspace_bytes = proposal.workspaceSize + product_bytes(shape);
    plans.push_back(plan);
  }
  return plans;
}

void run_library(const LinearPlan& plan, const LinearArguments& a, Workspace workspace,
                 Stream stream) {
  const LinearShape& shape = plan.shape;
  Matrix product = a.y;
  std::size_t used = 0;
  if (finishes_elsewhere(shape)) {
    product = {
        .data = workspace.data, .dtype = shape.out, .rows = shape.m, .cols = shape.weight_rows()};
    used = product_bytes(shape);
  }
  Problem problem(shape, a.w.row_stride(), a.x.row_stride(), product.row_stride(), a.bias);
  const cublasLtMatmulAlgo_t algorithm = algorithm_of(plan);
  const float one = 1, zero = 0;
  check_library(
      cublasLtMatmul(library(), &problem.operation, &one, a.w.data, &problem.w, a.x.data,
                     &problem.x, &zero, product.data, &problem.y, product.data, &problem.y,
                     &algorithm, static_cast<std::byte*>(workspace.data) + used,
                     plan.library_workspace, to_cuda(stream)),
      "cublasLtMatmul");
  if (finishes(shape)) finish(shape, product, a, !library_adds_bias(shape), stream);
}

}  // namespace rose::kernels::gpu::linear_paths
