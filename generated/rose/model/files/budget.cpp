// Count parameters, bytes and operations before running anything.

#include "rose/model/files/budget.h"

#include "rose/model/files/names.h"

namespace rose::model {

// Add them up.
std::int64_t parameter_count(const Config& config) {
  std::int64_t total = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    std::int64_t elements = 1;
    for (const std::int64_t n : tensor.shape) elements *= n;
    total += elements;
  }
  return total;
}

std::int64_t matrix_parameters(const Config& config) {
  const std::int64_t attention =
      2 * (config.heads + config.kv_heads) * config.head_dim * config.hidden;
  const std::int64_t feed_forward =
      (config.family == Family::gpt2 ? 2 : 3) * config.ffn * config.hidden;
  return config.layers * (attention + feed_forward) + config.vocab_size * config.hidden;
}

std::int64_t kv_bytes_per_token(const Config& config, std::int64_t element_bytes) {
  return 2 * config.layers * config.kv_heads * config.head_dim * element_bytes;
}

std::int64_t forward_flops(const Config& config, std::int64_t context, bool head) {
  const std::int64_t products =
      matrix_parameters(config) - (head ? 0 : config.vocab_size * config.hidden);
  const std::int64_t attention =
      config.layers * 2 * config.heads * config.head_dim * context;  // scores, values
  return 2 * (products + attention);
}

}  // namespace rose::model
