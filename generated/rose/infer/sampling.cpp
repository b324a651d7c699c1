// Check what a request asks, and ask it of each row.

#include "rose/infer/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/core/utf8.h"

namespace rose::infer {

namespace {

void require(bool holds, const char* field, const std::string& message) {
  if (!holds) throw core::Error(core::Code::invalid_argument, message).in(field);
}

void require_within(double value, double least, double most, const char* field) {
  require(value >= least && value <= most, field,
          fmt::format("{} is not within [{}, {}]", value, least, most));
}

// Check the tokens that a request names.
void check_tokens(const Sampling& s, std::int64_t vocab) {
  constexpr double bias = 100.0;
  std::vector<std::int32_t> seen;
  for (const auto& [id, value] : s.logit_bias) {
    require(id >= 0 && id < vocab, "logit_bias",
            fmt::format("there is no token {} among {}", id, vocab));
    require_within(value, -bias, bias, "logit_bias");
    seen.push_back(id);
  }
  std::ranges::sort(seen);
  const auto twice = std::ranges::adjacent_find(seen);
  if (twice != seen.end())
    require(false, "logit_bias", fmt::format("token {} has two biases", *twice));
  for (const std::int32_t id : s.stop_token_ids)
    require(id >= 0 && id < vocab, "stop_token_ids",
            fmt::format("there is no token {} among {}", id, vocab));
}

// Check where the answer may end.
void check_lengths(const Sampling& s) {
  constexpr std::size_t most_stop_bytes = std::size_t{1} << 20;
  require(s.max_tokens >= 0, "max_tokens", fmt::format("{} is not at least 0", s.max_tokens));
  require(s.min_tokens >= 0, "min_tokens", fmt::format("{} is not at least 0", s.min_tokens));
  require(s.min_tokens <= s.max_tokens, "min_tokens",
          fmt::format("{} is more than max_tokens, {}", s.min_tokens, s.max_tokens));
  std::size_t bytes = 0;
  for (const std::string& stop : s.stop) {
    require(!stop.empty(), "stop", "an empty text would end every answer before it begins");
    require(core::is_utf8(stop), "stop", "a stop text is not UTF-8");
    bytes += stop.size();
  }
  require(bytes <= most_stop_bytes, "stop",
          fmt::format("{} bytes of stop texts are more than {}", bytes, most_stop_bytes));
  require(!s.grammar || !s.ignore_eos, "ignore_eos",
          "the grammar decides where the text ends, so the end cannot be ignored");
}

}  // namespace

// Refuse what is out of range or contradicts itself.
void validate(const Sampling& s, std::int64_t vocab) {
  kernels::validate(
      {.temperature = s.temperature, .top_k = s.top_k, .top_p = s.top_p, .min_p = s.min_p});
  constexpr double penalty = 2.0;
  require(s.repetition_penalty > 0.0f && std::isfinite(s.repetition_penalty), "repetition_penalty",
          fmt::format("{} is not above 0; 1 changes nothing", s.repetition_penalty));
  require_within(s.presence_penalty, -penalty, penalty, "presence_penalty");
  require_within(s.frequency_penalty, -penalty, penalty, "frequency_penalty");
  require_within(s.n, 1, most_choices, "n");
  require(s.n == 1 || s.temperature > 0.0f, "n",
          fmt::format("{} answers at temperature 0 would be one and the same", s.n));
  require_within(s.logprobs, -1, most_logprobs, "logprobs");
  require_within(s.prompt_logprobs, -1, most_logprobs, "prompt_logprobs");
  require(!s.processed_logprobs || s.logprobs >= 0, "processed_logprobs",
          "logprobs are not asked for");
  check_tokens(s, vocab);
  check_lengths(s);
}

// Start one answer.
RequestSampler::RequestSampler(std::shared_ptr<const Sampling> sampling, int choice,
                               std::span<const std::int32_t> prompt, std::int64_t vocab,
                               std::span<const std::int32_t> eos_ids)
    : sampling_(std::move(sampling)),
      seed_(sampling_->seed.value_or(0)),
      prompt_tokens_(static_cast<std::int64_t>(prompt.size())),
      vocab_(vocab),
      penalised_(sampling_->repetition_penalty != 1.0f || sampling_->presence_penalty != 0.0f ||
                 sampling_->frequency_penalty != 0.0f),
      ends_(sampling_->stop_token_ids),
      banned_ends_(sampling_->logit_bias) {
  if (choice > 0) {
    constexpr auto no_position = std::numeric_limits<std::uint64_t>::max();
    seed_ = core::Rng(seed_, no_position, 2 * static_cast<std::uint64_t>(choice)).next64();
  }
  if (!sampling_->ignore_eos) ends_.insert(ends_.end(), eos_ids.begin(), eos_ids.end());
  std::ranges::sort(ends_);
  ends_.erase(std::ranges::unique(ends_).begin(), ends_.end());
  std::erase_if(banned_ends_,
                [&](const auto& bias) { return std::ranges::binary_search(ends_, bias.first); });
  for (const std::int32_t id : ends_)
    banned_ends_.emplace_back(id, -std::numeric_limits<float>::infinity());
  if (penalised_) {
    const std::int64_t most = std::min(vocab, prompt_tokens_ + sampling_->max_tokens);
    counts_.reserve(static_cast<std::size_t>(most));
    if (sampling_->repetition_penalty != 1.0f)
      for (const std::int32_t token : prompt) count(counts_, token, 0);
  }
  if (sampling_->grammar) state_ = sampling_->grammar->start();
}

// Ask one row for the token at a position.
RowSampling RequestSampler::settings(std::int64_t position) const {
  const Sampling& s = *sampling_;
  return {.params = {.temperature = s.temperature,
                     .top_k = s.top_k,
                     .top_p = s.top_p,
                     .min_p = s.min_p,
                     .seed = seed_,
                     .position = static_cast<std::uint64_t>(position)},
          .logprobs = s.logprobs,
          .processed = s.processed_logprobs};
}

RowSampling RequestSampler::row(std::int64_t position, std::span<const std::int32_t> drafts) {
  const Sampling& s = *sampling_;
  RowSampling row = settings(position);
  while (needs_history() && drafted_.size() <= drafts.size())
    drafted_.push_back(std::make_unique<Lists>());
  bool over = false;  // the grammar allows nothing but the end
  if (state_ != nullptr) {
    Lists& lists = *drafted_[drafts.size()];
    const bool possible = guarded([&] {
      std::unique_ptr<GrammarState> ahead;
      if (!drafts.empty()) ahead = state_->clone();
      GrammarState& state = ahead ? *ahead : *state_;
      const bool fits =
          std::ranges::all_of(drafts, [&](std::int32_t token) { return state.accept(token); });
      over = state.must_end();
      if (fits) fill_mask(state, lists.mask);
      return fits;
    });
    if (possible) row.adjust.mask = lists.mask;
  }
  const bool early = position - prompt_tokens_ < s.min_tokens && !over;
  row.adjust.bias = early ? banned_ends_ : s.logit_bias;
  if (penalised_) {
    const Counts* counts = &counts_;
    if (!drafts.empty()) {
      Counts& ahead = drafted_[drafts.size()]->counts;
      ahead = counts_;
      for (const std::int32_t token : drafts) count(ahead, token, 1);
      counts = &ahead;
    }
    row.adjust.context = *counts;
    row.adjust.repetition = s.repetition_penalty;
    row.adjust.frequency = s.frequency_penalty;
    row.adjust.presence = s.presence_penalty;
  }
  return row;
}

void RequestSampler::fill_mask(GrammarState& state, std::vector<std::uint32_t>& mask) const {
  constexpr std::size_t bits = 32;
  mask.resize((static_cast<std::size_t>(vocab_) + bits - 1) / bits);
  state.mask(mask);
  for (const std::int32_t id : ends_) {
    const auto v = static_cast<std::size_t>(id);
    const std::uint32_t bit = 1u << v % bits;
    mask[v / bits] = state.can_end() ? mask[v / bits] | bit : mask[v / bits] & ~bit;
  }
}

// Count a token.
void RequestSampler::count(Counts& counts, std::int32_t token, std::int32_t times) {
  const auto at = std::ranges::lower_bound(counts, token, {}, &Counts::value_type::first);
  if (at != counts.end() && at->first == token) {
    at->second += times;
  } else {
    counts.insert(at, {token, times});
  }
}

/// Also keeps why.
template <class Call>
bool RequestSampler::guarded(const Call& call) {
  if (failure_) return false;
  try {
    return call();
  } catch (const core::Error& error) {
    failure_ = std::make_shared<const core::Error>(error);
    return false;
  }
}

bool RequestSampler::accept(std::int32_t token) {
  if (penalised_) count(counts_, token, 1);
  if (state_ == nullptr || std::ranges::binary_search(ends_, token)) return true;
  return guarded([&] { return state_->accept(token); });
}

std::string RequestSampler::forced() {
  std::string bytes;
  if (state_ != nullptr) guarded([&] { return bytes = state_->forced(), true; });
  return bytes;
}

}  // namespace rose::infer
