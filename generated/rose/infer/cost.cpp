// Count what a step of the engine costs.

#include "rose/infer/cost.h"

#include "rose/model/files/budget.h"

namespace rose::infer {

Work& Work::add(std::int64_t before, std::int64_t count, bool choose) {
  tokens += count;
  logits += choose ? 1 : 0;
  attended += count * before + count * (count + 1) / 2;
  cached += before + count;
  return *this;
}

kernels::gpu::Cost step_cost(const model::Config& config, const Work& work, Widths widths) {
  const auto head = static_cast<double>(config.vocab_size * config.hidden);
  const double matrices = static_cast<double>(model::matrix_parameters(config)) - head;
  const auto tokens = static_cast<double>(work.tokens), logits = static_cast<double>(work.logits);
  const auto pair = static_cast<double>(4 * config.layers * config.heads * config.head_dim);
  const auto position = static_cast<double>(model::kv_bytes_per_token(config, 1)) * widths.kv;
  const double attended = static_cast<double>(work.attended);
  return {.flops = 2 * (matrices * tokens + head * logits) + pair * attended,
          .bytes = widths.weight * (matrices + (work.logits > 0 ? head : 0)) +
                   position * static_cast<double>(work.cached + work.tokens)};
}

std::int64_t positions_in(const model::Config& config, double bytes, double kv_width) {
  return static_cast<std::int64_t>(
      bytes / (static_cast<double>(model::kv_bytes_per_token(config, 1)) * kv_width));
}

}  // namespace rose::infer
