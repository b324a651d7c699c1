// Check what a choice is given.

#include "rose/kernels/gpu/sampling.h"

namespace rose::kernels::gpu {

void launch_adjust_logits(const Matrix&, const LogitAdjustments&, Stream);
void launch_sample(const Matrix&, const SamplingParams*, std::int32_t*, float*, Stream);
void launch_top_logprobs(const Matrix&, const float*, int, std::int32_t*, float*, Stream);

namespace {

void check_logits(const Matrix& logits) {
  constexpr std::int64_t most = 0x7fffffff;
  check_matrix(logits, "logits", logits.rows, logits.cols, DType::f32);
  if (logits.rows > most || logits.cols > most) bad_argument("logits", "too many");
  if (logits.rows > 0 && logits.cols == 0) bad_argument("logits", "rows without columns");
}

}  // namespace

void adjust_logits(const Matrix& logits, const LogitAdjustments& a,
                   [[maybe_unused]] Stream stream) {
  constexpr std::int64_t bits = 32;
  check_logits(logits);
  if (a.mask != nullptr && a.mask_words * bits < logits.cols)
    bad_argument("mask", "a bit for each token is needed");
  if (a.bias_offsets != nullptr && (a.bias_ids == nullptr || a.bias_values == nullptr)) {
    bad_argument("bias", "offsets without ids and values");
  }
  if (a.context_offsets != nullptr &&
      (a.context_ids == nullptr || a.context_counts == nullptr || a.repetition == nullptr ||
       a.frequency == nullptr || a.presence == nullptr)) {
    bad_argument("context", "offsets without ids, counts and penalties");
  }
  if (logits.empty()) return;
#ifdef ROSE_HAVE_CUDA
  launch_adjust_logits(logits, a, stream);
#else
  no_cuda("adjust_logits");
#endif
}

void sample(const Matrix& logits, const SamplingParams* params, std::int32_t* tokens,
            [[maybe_unused]] float* logprobs, [[maybe_unused]] Stream stream) {
  check_logits(logits);
  if (logits.empty()) return;
  if (params == nullptr) bad_argument("params", "no memory");
  if (tokens == nullptr) bad_argument("tokens", "no memory");
#ifdef ROSE_HAVE_CUDA
  launch_sample(logits, params, tokens, logprobs, stream);
#else
  no_cuda("sample");
#endif
}

void top_logprobs(const Matrix& logits, const float* lse, int count, std::int32_t* ids,
                  float* logprobs, [[maybe_unused]] Stream stream) {
  check_logits(logits);
  if (count < 0 || count > most_top_logprobs) bad_argument("count", "0 to 64 are possible");
  if (logits.empty() || count == 0) return;
  if (lse == nullptr) bad_argument("lse", "no memory");
  if (ids == nullptr || logprobs == nullptr) bad_argument("ids", "no memory");
#ifdef ROSE_HAVE_CUDA
  launch_top_logprobs(logits, lse, count, ids, logprobs, stream);
#else
  no_cuda("top_logprobs");
#endif
}

}  // namespace rose::kernels::gpu
