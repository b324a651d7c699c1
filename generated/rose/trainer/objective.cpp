// Add sums, and look at a batch before anything is computed.

#include "rose/trainer/objective.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "rose/core/error.h"

namespace rose::trainer {

LossSum& LossSum::operator+=(const LossSum& other) {
  loss += other.loss;
  weight += other.weight;
  tokens += other.tokens;
  z += other.z;
  return *this;
}

double total_weight(const MicroBatch& batch) {
  double sum = 0.0;
  for (std::size_t t = 0; t < batch.targets.size(); ++t)
    sum += static_cast<double>(weight_of(batch, t));
  return sum;
}

// Name what does not fit.
namespace {

[[noreturn]] void refuse(const char* what, std::string message) {
  throw core::Error(core::Code::invalid_argument, std::move(message)).in(what);
}

void check_rows(const MicroBatch& b, std::int64_t positions) {
  const auto end = static_cast<std::int32_t>(b.ids.size());
  const auto& rows = b.row_offsets;
  if (rows.empty() || rows.front() != 0 || rows.back() != end)
    refuse("row_offsets", fmt::format("they must run from 0 to {}", end));
  for (std::size_t s = 0; s + 1 < rows.size(); ++s) {
    if (rows[s + 1] < rows[s]) refuse("row_offsets", "they must not descend");
    for (auto t = static_cast<std::size_t>(rows[s]); t < static_cast<std::size_t>(rows[s + 1]);
         ++t) {
      const std::int32_t at = b.positions[t];
      const bool first = t == static_cast<std::size_t>(rows[s]);
      if (at < 0 || (!first && at != b.positions[t - 1] + 1))
        refuse("positions",
               fmt::format("those of sequence {} are not consecutive at token {}", s, t));
      if (positions > 0 && at >= positions)
        refuse("positions", fmt::format("token {} is at position {}, the model has {} positions", t,
                                        at, positions));
    }
  }
}

}  // namespace

void check(const MicroBatch& b, std::int64_t vocabulary, std::int64_t positions) {
  if (b.positions.size() != b.ids.size() || b.targets.size() != b.ids.size() ||
      (!b.weights.empty() && b.weights.size() != b.ids.size()))
    refuse("micro-batch", "ids, positions, targets and weights differ in size");
  check_rows(b, positions);
  for (std::size_t t = 0; t < b.ids.size(); ++t) {
    const std::int32_t beyond = std::max(b.ids[t], b.targets[t]);
    if (b.ids[t] < 0 || b.targets[t] < -1 || beyond >= vocabulary) {
      throw core::Error(
          core::Code::invalid_argument,
          fmt::format("token {} of the batch is {}, and the vocabulary has {} entries", t,
                      b.ids[t] < 0 ? b.ids[t] : beyond, vocabulary))
          .in("micro-batch")
          .hint("was the text tokenised with this model's tokenizer?");
    }
    if (!std::isfinite(weight_of(b, t)))
      refuse("weights", fmt::format("the weight of token {} is not finite", t));
  }
}

}  // namespace rose::trainer
