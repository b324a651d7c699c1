// Say how a request's tokens are chosen.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rose/core/error.h"
#include "rose/infer/grammar.h"
#include "rose/kernels/sampling.h"

namespace rose::infer {

/// What a request asks. The defaults draw from the model's own distribution.
struct Sampling {
  float temperature = 1.0f;  ///< 0: the most likely token, of equal ones the lowest id
  float top_p = 1.0f, min_p = 0.0f;
  int top_k = 0;                                             ///< 0: all
  float repetition_penalty = 1.0f;                           ///< over prompt and answer
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;   ///< over the answer
  std::vector<std::pair<std::int32_t, float>> logit_bias{};  ///< token, what to add
  std::optional<std::uint64_t> seed{};                       ///< absent: the engine gives one
  int n = 1;                                                 ///< answers to one prompt
  int logprobs = -1;                ///< -1: none; 0: of the chosen token; k: and of the k likeliest
  bool processed_logprobs = false;  ///< of the distribution drawn from, not of the model's
  int prompt_logprobs = -1;
  std::int64_t max_tokens = 16, min_tokens = 0;
  std::vector<std::string> stop{};  ///< texts that end the answer
  bool include_stop = false;        ///< keep them in it
  std::vector<std::int32_t> stop_token_ids{};
  bool ignore_eos = false;
  std::shared_ptr<const Grammar> grammar{};
};

inline constexpr int most_choices = 128;
inline constexpr int most_logprobs = 20;

/// Throws core::Error (invalid_argument) that names the field: out of range, or in contradiction to
/// another one. `vocab` is the number of logits.
void validate(const Sampling& sampling, std::int64_t vocab);

// Say how one row of logits is read.
struct RowSampling {
  kernels::SamplingParams params{};
  kernels::LogitAdjustment adjust{};  ///< its lists belong to the request, and outlive the step
  std::int32_t given = -1;            ///< at least 0: draw nothing, report this token's logprob
  int logprobs = -1;                  ///< as in Sampling
  bool processed = false;
};

// Remember what one answer to a request has said.
class RequestSampler {
 public:
  /// choice in [0, n). eos_ids end the text unless ignore_eos. The sampling has been validated.
  RequestSampler(std::shared_ptr<const Sampling> sampling, int choice,
                 std::span<const std::int32_t> prompt, std::int64_t vocab,
                 std::span<const std::int32_t> eos_ids);

  /// True with penalties or a grammar: the row of a token depends on the tokens before it, so it
  /// cannot be made while the one before is still being chosen.
  bool needs_history() const { return penalised_ || state_ != nullptr; }

  /// The settings for the token that will stand at `position`, counted from the prompt's start, as
  /// if the tokens accepted so far were followed by `drafts`. The lists live until the next accept
  /// or the next row with as many drafts.
  RowSampling row(std::int64_t position, std::span<const std::int32_t> drafts = {});

  /// The part of it that does not depend on tokens: all but the adjustments.
  RowSampling settings(std::int64_t position) const;

  /// The token was chosen. False: the grammar forbids it (it came from elsewhere than a row).
  bool accept(std::int32_t token);

  const Sampling& sampling() const { return *sampling_; }
  const GrammarState* grammar() const { return state_.get(); }
  std::string forced();  ///< the bytes that the grammar says must follow, if any
  /// Why the grammar cannot follow the text any further; null while it can. What was drawn after it has failed must not be told.
  const std::shared_ptr<const core::Error>& failure() const { return failure_; }

 private:
  using Counts = std::vector<std::pair<std::int32_t, std::int32_t>>;
  struct Lists {  // what the rows of one step point into, for one number of drafts
    Counts counts;
    std::vector<std::uint32_t> mask;
  };
  static void count(Counts& counts, std::int32_t token, std::int32_t times);
  void fill_mask(GrammarState& state, std::vector<std::uint32_t>& mask) const;
  template <class Call>
  bool guarded(const Call& call);  ///< false, with a failure, when the grammar gives up

  std::shared_ptr<const Sampling> sampling_;
  std::uint64_t seed_;
  std::int64_t prompt_tokens_, vocab_;
  bool penalised_;
  std::vector<std::int32_t> ends_;                           // tokens that end the text
  std::vector<std::pair<std::int32_t, float>> banned_ends_;  // the biases, and -inf on ends_
  Counts counts_;
  std::unique_ptr<GrammarState> state_;
  std::shared_ptr<const core::Error> failure_;
  std::vector<std::unique_ptr<Lists>> drafted_;  // by number of drafts; entry 0 holds a mask only
};

}  // namespace rose::infer
