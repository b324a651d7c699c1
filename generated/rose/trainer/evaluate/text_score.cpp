// Cut into windows, count each token once.

#include "rose/trainer/evaluate/text_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rose/core/error.h"

namespace rose::trainer {

double TextScore::perplexity() const {
  return std::exp(loss());
}

double TextScore::bits_per_byte() const {
  return -total.log_prob / std::log(2.0) / static_cast<double>(total.bytes);
}

std::vector<std::int32_t> opening(const text::Tokenizer& tokenizer) {
  const auto prefix = tokenizer.prefix();
  if (!prefix.empty()) return {prefix.begin(), prefix.end()};
  if (tokenizer.bos()) return {*tokenizer.bos()};
  if (tokenizer.eos()) return {*tokenizer.eos()};
  return {};
}

// The windows of one document.
namespace {

/// Appends windows over ids whose first `given` are not scored.
void cut(std::span<const std::int32_t> ids, std::size_t given, const TextScoreOptions& options,
         std::vector<Sequence>& out) {
  const auto context = static_cast<std::size_t>(options.context),
             stride = static_cast<std::size_t>(options.stride);
  std::size_t scored = std::max<std::size_t>(given, 1);  // ids before it are done
  for (std::size_t begin = 0; scored < ids.size(); begin += stride) {
    const std::size_t end = std::min(begin + context + 1, ids.size());
    if (end <= scored) continue;
    Sequence window;
    window.ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                      ids.begin() + static_cast<std::ptrdiff_t>(end));
    window.first = scored - begin;
    out.push_back(std::move(window));
    scored = end;
  }
}

}  // namespace

// Score documents.
TextScore score_documents(const LogProbs& log_probs, const text::Tokenizer& tokenizer,
                          std::span<const std::vector<std::int32_t>> documents,
                          const TextScoreOptions& given) {
  TextScoreOptions options = given;
  if (options.stride == 0) options.stride = options.context;
  if (options.context < 1 || options.stride < 1 || options.stride > options.context) {
    throw core::Error(
        core::Code::invalid_argument,
        fmt::format("windows of {} tokens cannot advance by {}", options.context, options.stride))
        .in("stride")
        .hint("a stride is at least 1 and at most the context");
  }
  TextScore score;
  const std::vector<std::int32_t> open = opening(tokenizer);
  std::vector<Sequence> windows;
  std::vector<std::size_t> owner;
  for (const std::vector<std::int32_t>& document : documents) {
    std::vector<std::int32_t> ids = open;
    ids.insert(ids.end(), document.begin(), document.end());
    cut(ids, open.size(), options, windows);
    owner.resize(windows.size(), score.documents.size());
    Score& of = score.documents.emplace_back();
    for (std::size_t i = std::max<std::size_t>(open.size(), 1); i < ids.size(); ++i)
      ++of.tokens, of.bytes += static_cast<std::int64_t>(tokenizer.bytes(ids[i]).size());
  }
  const std::vector<double> sums = score_sequences(log_probs, windows, options.most);
  for (std::size_t w = 0; w < sums.size(); ++w) score.documents[owner[w]].log_prob += sums[w];
  for (const Score& document : score.documents) score.total += document;
  if (score.total.tokens == 0) {
    throw core::Error(core::Code::invalid_argument, "there is no token to score").in("data");
  }
  return score;
}

}  // namespace rose::trainer
