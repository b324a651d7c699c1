// Check what a loss is given.

#include "rose/kernels/gpu/cross_entropy.h"

namespace rose::kernels::gpu {

void launch_token_logprob(const Matrix& logits, const std::int32_t* targets, float* logprob,
                          float* lse, Stream stream);
void launch_cross_entropy(const Matrix& logits, const std::int32_t* targets, float scale,
                          const Matrix& dlogits, float* losses, float* lse, const LossTerms& terms,
                          Stream stream);

namespace {

void check_logits(const Matrix& logits, const std::int32_t* targets, bool targets_needed) {
  constexpr std::int64_t most = 0x7fffffff, widest_cluster = 8;
  check_matrix(logits, "logits", logits.rows, logits.cols, DType::f32);
  if (logits.rows > most / widest_cluster || logits.cols > most) bad_argument("logits", "too many");
  if (logits.rows > 0 && logits.cols == 0) bad_argument("logits", "rows without columns");
  if (logits.rows > 0 && targets_needed && targets == nullptr) bad_argument("targets", "no memory");
}

}  // namespace

void token_logprob(const Matrix& logits, const std::int32_t* targets, float* logprob, float* lse,
                   [[maybe_unused]] Stream stream) {
  check_logits(logits, targets, logprob != nullptr);
  if (logits.empty() || (logprob == nullptr && lse == nullptr)) return;
#ifdef ROSE_HAVE_CUDA
  launch_token_logprob(logits, targets, logprob, lse, stream);
#else
  no_cuda("token_logprob");
#endif
}

void cross_entropy(const Matrix& logits, const std::int32_t* targets, [[maybe_unused]] float scale,
                   const Matrix& dlogits, [[maybe_unused]] float* losses,
                   [[maybe_unused]] float* lse, [[maybe_unused]] Stream stream,
                   [[maybe_unused]] const LossTerms& terms) {
  check_logits(logits, targets, true);
  if (!is_activation(dlogits.dtype)) bad_argument("dlogits", "f32, bf16 or f16 is needed");
  check_matrix(dlogits, "dlogits", logits.rows, logits.cols, dlogits.dtype);
  if (logits.empty()) return;
  if (dlogits.data == logits.data &&
      (dlogits.dtype != DType::f32 || dlogits.row_stride() != logits.row_stride())) {
    bad_argument("dlogits", "in the logits' place it must be laid out as they are");
  }
#ifdef ROSE_HAVE_CUDA
  launch_cross_entropy(logits, targets, scale, dlogits, losses, lse, terms, stream);
#else
  no_cuda("cross_entropy");
#endif
}

}  // namespace rose::kernels::gpu
