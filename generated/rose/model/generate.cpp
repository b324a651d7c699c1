// Continue a prompt, token by token.

#include "rose/model/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "rose/core/error.h"

namespace rose::model {

namespace {

constexpr std::int64_t default_context = 8192;
constexpr std::int64_t prefill_chunk = 256;  // tokens of a prompt per pass: bounds the activations

// Decide how many positions to keep.
std::int64_t chosen_context(const Config& config, std::int64_t asked) {
  if (asked == 0) return std::min(config.max_positions, default_context);
  if (asked < 1 || asked > config.max_positions) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("a context of {} is outside the model's 1 to {} positions", asked,
                                  config.max_positions))
        .in("context");
  }
  return asked;
}

}  // namespace

// Reserve everything that generation will need.
Generator::Generator(std::shared_ptr<const WeightSet> weights, std::int64_t context,
                     core::ThreadPool& pool)
    : weights_(std::move(weights)),
      cache_(weights_->config(), 1, chosen_context(weights_->config(), context)),
      workspace_(weights_->config(), pool) {
  const Config& config = weights_->config();
  const std::int64_t chunk = std::min(prefill_chunk, cache_.capacity());
  workspace_.reserve(chunk);
  hidden_.resize(static_cast<std::size_t>(chunk * config.hidden));
  logits_.resize(static_cast<std::size_t>(config.vocab_size));
  cached_.reserve(static_cast<std::size_t>(cache_.capacity()));
  positions_.resize(static_cast<std::size_t>(cache_.capacity()));
  std::iota(positions_.begin(), positions_.end(), 0);
}

// Append tokens to the cache and look at the last one's logits.
std::span<const float> Generator::advance(std::span<const std::int32_t> ids) {
  const auto width = static_cast<std::size_t>(weights_->config().hidden);
  const std::size_t chunk = hidden_.size() / width;
  std::span<float> rows;
  while (!ids.empty()) {
    const std::size_t n = std::min(chunk, ids.size());
    const std::array<std::int32_t, 2> offsets{0, static_cast<std::int32_t>(n)};
    rows = std::span(hidden_).first(n * width);
    Batch batch{ids.first(n), std::span(positions_).subspan(cached_.size(), n), offsets};
    const Adapter* const adapter = adapter_.get();
    if (adapter != nullptr) batch.adapters = {&adapter, 1};
    forward(*weights_, batch, &cache_.view(), nullptr, workspace_, rows);
    cached_.insert(cached_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    ids = ids.subspan(n);
  }
  logits(*weights_, rows.last(width), 1, workspace_, logits_);
  return logits_;
}

// Read the prompt, then write.
Generation Generator::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                               const std::function<bool(std::int32_t)>& on_token) {
  // Refuse what cannot be continued.
  validate(options.sampling);
  if (options.max_tokens < 1) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} is not at least 1", options.max_tokens))
        .in("max_tokens");
  }
  if (prompt.empty())
    throw core::Error(core::Code::invalid_argument, "there is nothing to continue").in("prompt");
  if (static_cast<std::int64_t>(prompt.size()) > context()) {
    throw core::Error(
        core::Code::out_of_range,
        fmt::format("the prompt has {} tokens, the context holds {}", prompt.size(), context()))
        .in("prompt")
        .hint(context() < weights_->config().max_positions
                  ? "ask for a larger context, or shorten the prompt"
                  : "shorten the prompt; the model was made for no more");
  }
  for (const std::int32_t id : prompt) {
    if (id < 0 || id >= weights_->config().vocab_size) {
      throw core::Error(core::Code::out_of_range, fmt::format("token id {} is outside [0, {})", id,
                                                              weights_->config().vocab_size))
          .in("prompt");
    }
  }
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double>(b - a).count();
  };
  const std::vector<std::int32_t>& stops =
      options.stop_ids.empty() ? weights_->config().eos_ids : options.stop_ids;
  Generation result;
  result.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  result.ids.reserve(
      static_cast<std::size_t>(std::min(options.max_tokens, context() - result.prompt_tokens + 1)));

  const auto start = Clock::now();
  const auto same =
      std::ranges::mismatch(prompt.first(prompt.size() - 1), cached_).in1 - prompt.begin();
  cached_.resize(static_cast<std::size_t>(same));
  result.reused_tokens = same;
  std::span<const float> row = advance(prompt.subspan(static_cast<std::size_t>(same)));
  std::int32_t id =
      sampler_.choose(row, options.sampling, static_cast<std::int64_t>(cached_.size()));
  const auto first = Clock::now();
  result.prefill_seconds = seconds(start, first);
  while (true) {
    if (!options.ignore_stop && std::ranges::find(stops, id) != stops.end()) {
      result.finish = Finish::stop;
      break;
    }
    result.ids.push_back(id);
    if (on_token && !on_token(id)) {
      result.finish = Finish::cancelled;
      break;
    }
    if (static_cast<std::int64_t>(result.ids.size()) == options.max_tokens) break;
    if (static_cast<std::int64_t>(cached_.size()) == context()) {
      result.finish = Finish::context;
      break;
    }
    row = advance({&id, 1});
    id = sampler_.choose(row, options.sampling, static_cast<std::int64_t>(cached_.size()));
  }
  result.decode_seconds = seconds(first, Clock::now());
  return result;
}

}  // namespace rose::model
