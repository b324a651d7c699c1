// Score on the CPU, and pack sequences.

#include "rose/trainer/evaluate/scorer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rose/core/error.h"
#include "rose/kernels/logprob.h"
#include "rose/model/forward.h"
#include "rose/trainer/objective.h"

namespace rose::trainer {

Score& Score::operator+=(const Score& other) {
  log_prob += other.log_prob, tokens += other.tokens, bytes += other.bytes;
  return *this;
}

// One forward pass, and the head for the rows that count.
namespace {

class CpuScorer {
 public:
  CpuScorer(std::shared_ptr<const model::WeightSet> weights, core::ThreadPool& pool)
      : weights_(std::move(weights)), pool_(&pool), work_(weights_->config(), pool) {}

  void operator()(const MicroBatch& batch, std::span<float> out) {
    const model::Config& config = weights_->config();
    check(batch, config.vocab_size, config.max_positions);
    const auto c = static_cast<std::size_t>(config.hidden),
               v = static_cast<std::size_t>(config.vocab_size);
    hidden_.resize(batch.ids.size() * c);
    model::forward(*weights_, batch_of(batch), nullptr, nullptr, work_, hidden_);
    counted_.clear();
    for (std::size_t t = 0; t < batch.targets.size(); ++t)
      if (batch.targets[t] >= 0) counted_.push_back(t);
    std::fill(out.begin(), out.end(), 0.0f);
    constexpr std::size_t kRows = 256;
    rows_.resize(kRows * c), logits_.resize(kRows * v), values_.resize(kRows);
    for (std::size_t r = 0; r < counted_.size(); r += kRows) {
      const std::size_t n = std::min(kRows, counted_.size() - r);
      targets_.resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        std::memcpy(&rows_[i * c], &hidden_[counted_[r + i] * c], c * sizeof(float));
        targets_[i] = batch.targets[counted_[r + i]];
      }
      const auto count = static_cast<std::int64_t>(n);
      const auto scores = std::span<float>(logits_).first(n * v);
      model::logits(*weights_, std::span<const float>(rows_).first(n * c), count, work_, scores);
      kernels::token_logprob(scores, count, targets_, std::span(values_).first(n), {}, *pool_);
      for (std::size_t i = 0; i < n; ++i) out[counted_[r + i]] = values_[i];
    }
  }

 private:
  std::shared_ptr<const model::WeightSet> weights_;
  core::ThreadPool* pool_;
  model::Workspace work_;
  std::vector<std::size_t> counted_;
  std::vector<std::int32_t> targets_;
  std::vector<float> hidden_, rows_, logits_, values_;
};

}  // namespace

LogProbs cpu_log_probs(std::shared_ptr<const model::WeightSet> weights, core::ThreadPool& pool) {
  auto scorer = std::make_shared<CpuScorer>(std::move(weights), pool);
  return [scorer](const MicroBatch& batch, std::span<float> out) { (*scorer)(batch, out); };
}

// Pack sequences, and add up what was asked for.
std::vector<double> score_sequences(const LogProbs& log_probs, std::span<const Sequence> sequences,
                                    std::int64_t most) {
  std::vector<double> sums(sequences.size(), 0.0);
  MicroBatchBuffer batch;
  batch.clear();
  std::vector<float> values;
  std::size_t begin = 0;
  const auto flush = [&](std::size_t end) {
    if (begin == end) return;
    values.resize(batch.ids.size());
    log_probs(batch.view(), values);
    for (std::size_t s = begin, t = 0; s < end; ++s)
      for (std::size_t i = 1; i < sequences[s].ids.size(); ++i)
        sums[s] += static_cast<double>(values[t++]);
    batch.clear();
    begin = end;
  };
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& sequence = sequences[s];
    if (sequence.first < 1 || sequence.ids.size() < 2) {
      throw core::Error(core::Code::invalid_argument, "the first token has nothing before it")
          .in("sequence");
    }
    if (!batch.ids.empty() &&
        static_cast<std::int64_t>(batch.ids.size() + sequence.ids.size() - 1) > most)
      flush(s);
    for (std::size_t i = 1; i < sequence.ids.size(); ++i)
      batch.push(sequence.ids[i - 1], i >= sequence.first ? sequence.ids[i] : -1);
    batch.end_sequence();
  }
  flush(sequences.size());
  return sums;
}

}  // namespace rose::trainer
