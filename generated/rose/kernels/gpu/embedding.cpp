// Check the tables.

#include "rose/kernels/gpu/embedding.h"

namespace rose::kernels::gpu {

void launch_embedding(const std::int32_t*, const Matrix&, const Matrix&, Stream);
std::size_t embedding_backward_bytes(std::int64_t tokens);
void launch_embedding_backward(const std::int32_t*, const Matrix&, const Matrix&, Workspace,
                               Stream);

namespace {

void check_rows(const std::int32_t* ids, const Matrix& rows, const char* name, std::int64_t cols) {
  constexpr std::int64_t most_tokens = 0x7fffffff;
  check_matrix(rows, name, rows.rows, cols, rows.dtype);
  if (!is_activation(rows.dtype)) bad_argument(name, "f32, bf16 or f16 is needed");
  if (rows.rows > most_tokens) bad_argument(name, "too many tokens");
  if (rows.rows > 0 && ids == nullptr) bad_argument("ids", "no memory");
}

}  // namespace

void embedding(const std::int32_t* ids, const Matrix& table, const Matrix& out,
               [[maybe_unused]] Stream stream) {
  check_matrix(table, "table");
  if (!is_activation(table.dtype)) bad_argument("table", "f32, bf16 or f16 is needed");
  check_rows(ids, out, "out", table.cols);
  if (out.empty()) return;
#ifdef ROSE_HAVE_CUDA
  launch_embedding(ids, table, out, stream);
#else
  no_cuda("embedding");
#endif
}

std::size_t embedding_backward_workspace([[maybe_unused]] std::int64_t tokens) {
#ifdef ROSE_HAVE_CUDA
  return embedding_backward_bytes(tokens);
#else
  no_cuda("embedding_backward");
#endif
}

void embedding_backward(const std::int32_t* ids, const Matrix& dy, const Matrix& dtable,
                        [[maybe_unused]] Workspace workspace, [[maybe_unused]] Stream stream) {
  check_matrix(dtable, "dtable", dtable.rows, dtable.cols, DType::f32);
  check_rows(ids, dy, "dy", dtable.cols);
  if (dy.empty() || dtable.empty()) return;
#ifdef ROSE_HAVE_CUDA
  check_workspace(workspace, embedding_backward_bytes(dy.rows));
  launch_embedding_backward(ids, dy, dtable, workspace, stream);
#else
  no_cuda("embedding_backward");
#endif
}

}  // namespace rose::kernels::gpu
