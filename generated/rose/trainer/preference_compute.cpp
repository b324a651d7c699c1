// Measure, weigh, pass on.

#include "rose/trainer/preference_compute.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/hash.h"

namespace rose::trainer {

std::uint64_t answer_key(std::span<const std::int32_t> ids, std::span<const std::int32_t> targets) {
  const std::array parts{core::xxh3(std::as_bytes(ids)), core::xxh3(std::as_bytes(targets))};
  return core::xxh3(std::as_bytes(std::span(parts)));
}

// Say how the pairs stand.
void PreferenceRecord::add(const PreferenceValue& value) {
  items += 1, margin += value.margin;
  ahead += value.margin > 0 ? 1 : 0;
}

void PreferenceRecord::add(const AnswerScore& answer, bool good) {
  (good ? chosen : rejected) += answer.mean();
  (good ? chosen_n : rejected_n) += 1;
}

std::vector<std::pair<std::string, double>> PreferenceRecord::numbers() const {
  std::vector<std::pair<std::string, double>> out;
  if (items > 0) out = {{"accuracy", ahead / items}, {"margin", margin / items}};
  if (chosen_n > 0) out.emplace_back("chosen_logprob", chosen / chosen_n);
  if (rejected_n > 0) out.emplace_back("rejected_logprob", rejected / rejected_n);
  return out;
}

namespace {

// Find the answers of a micro-batch and what is known of them.
struct Answer {
  std::size_t begin = 0, end = 0;  // tokens of the sequence
  AnswerScore score{};
  bool good = true;
};

std::vector<Answer> answers_of(const MicroBatch& batch, std::span<const float> logprobs,
                               const KnownAnswers& known, bool must_be_known) {
  std::vector<Answer> out;
  for (std::size_t s = 0; s + 1 < batch.row_offsets.size(); ++s) {
    Answer answer{.begin = static_cast<std::size_t>(batch.row_offsets[s]),
                  .end = static_cast<std::size_t>(batch.row_offsets[s + 1])};
    answer.score.tokens = 0;
    for (std::size_t t = answer.begin; t < answer.end; ++t) {
      if (batch.targets[t] < 0) continue;
      answer.score.policy += static_cast<double>(logprobs[t]);
      ++answer.score.tokens;
    }
    const std::size_t n = answer.end - answer.begin;
    const auto found = known.find(
        answer_key(batch.ids.subspan(answer.begin, n), batch.targets.subspan(answer.begin, n)));
    if (found != known.end()) {
      answer.score.reference = found->second.reference, answer.good = found->second.good;
    } else if (must_be_known) {
      throw core::Error(core::Code::internal, "the reference has not seen this answer")
          .in("preferences");
    }
    out.push_back(answer);
  }
  if (out.size() % 2 != 0)
    throw core::Error(core::Code::internal, "answers come two by two").in("preferences");
  return out;
}

}  // namespace

// Turn a micro-batch into losses and weights.
PreferenceCompute::PreferenceCompute(std::unique_ptr<Compute> device,
                                     const PreferenceOptions& options,
                                     std::shared_ptr<const KnownAnswers> known,
                                     std::shared_ptr<PreferenceRecord> record)
    : device_(std::move(device)),
      options_(options),
      known_(std::move(known)),
      record_(std::move(record)) {}

LossSum PreferenceCompute::judge(const MicroBatch& batch) {
  logprobs_.resize(batch.ids.size());
  device_->logprobs(batch, logprobs_);
  const bool single = options_.loss == PreferenceLoss::kto;
  std::vector<Answer> answers =
      answers_of(batch, logprobs_, *known_, single || has_reference(options_.loss));
  weights_.assign(batch.ids.size(), 0.0f);
  LossSum sum;
  const auto weigh = [&](const Answer& answer, double derivative) {
    for (std::size_t t = answer.begin; t < answer.end; ++t)
      if (batch.targets[t] >= 0) weights_[t] = static_cast<float>(-derivative);
    sum.tokens += answer.score.tokens;
  };
  double z = 0.0;
  for (std::size_t i = 1; i < answers.size(); i += 2) z += answers[i].score.ratio();
  z = std::max(0.0, z / static_cast<double>(std::max<std::size_t>(1, answers.size() / 2)));
  for (std::size_t i = 0; i < answers.size(); i += 2) {
    const PreferenceValue value =
        single ? kto(options_, answers[i].score, answers[i].good, z)
               : preference(options_, answers[i].score, answers[i + 1].score);
    weigh(answers[i], value.chosen);
    if (!single) weigh(answers[i + 1], value.rejected);
    record_->add(value);
    record_->add(answers[i].score, single ? answers[i].good : true);
    if (!single) record_->add(answers[i + 1].score, false);
    sum.loss += value.loss, sum.weight += 1.0;
  }
  return sum;
}

void PreferenceCompute::zero_gradients() {
  record_->clear();
  device_->zero_gradients();
}

LossSum PreferenceCompute::accumulate(const MicroBatch& batch, double scale) {
  const LossSum sum = judge(batch);
  std::vector<std::int32_t> targets(batch.targets.begin(), batch.targets.end());
  for (std::size_t t = 0; t < targets.size(); ++t)
    if (weights_[t] == 0.0f) targets[t] = -1;
  MicroBatch weighted = batch;
  weighted.targets = targets, weighted.weights = weights_;
  device_->accumulate(weighted, scale);
  return sum;
}

LossSum PreferenceCompute::evaluate(const MicroBatch& batch) {
  return judge(batch);
}

// Ask a model for all answers once.
std::map<std::uint64_t, double> answer_logprobs(Compute& device,
                                                const std::vector<ChatSequence>& sequences,
                                                std::int64_t tokens) {
  std::map<std::uint64_t, double> out;
  MicroBatchBuffer batch;
  std::vector<float> logprobs;
  for (std::size_t s = 0; s < sequences.size();) {
    batch.clear();
    do {
      push_sequence(sequences[s], batch);
    } while (++s < sequences.size() &&
             static_cast<std::int64_t>(batch.ids.size()) + sequences[s].cells() <= tokens);
    logprobs.resize(batch.ids.size());
    device.logprobs(batch.view(), logprobs);
    for (std::size_t r = 0; r + 1 < batch.row_offsets.size(); ++r) {
      const auto begin = static_cast<std::size_t>(batch.row_offsets[r]),
                 n = static_cast<std::size_t>(batch.row_offsets[r + 1]) - begin;
      double sum = 0.0;
      for (std::size_t t = begin; t < begin + n; ++t)
        if (batch.targets[t] >= 0) sum += static_cast<double>(logprobs[t]);
      out[answer_key(std::span(batch.ids).subspan(begin, n),
                     std::span(batch.targets).subspan(begin, n))] = sum;
    }
  }
  return out;
}

}  // namespace rose::trainer
