// Turn an answer's tokens into text that is never taken back.

#include "rose/infer/text_stream.h"

#include <algorithm>

namespace rose::infer {

TextStream::TextStream(text::Tokenizer tokenizer, std::shared_ptr<const Sampling> sampling,
                       std::span<const std::int32_t> eos_ids, bool skip_special)
    : sampling_(std::move(sampling)),
      ends_(sampling_->stop_token_ids),
      stops_(sampling_->stop),
      detokenizer_(std::move(tokenizer), skip_special) {
  if (!sampling_->ignore_eos) ends_.insert(ends_.end(), eos_ids.begin(), eos_ids.end());
}

// Let go of what can no longer be part of a stop text.
std::optional<Stop> TextStream::scan(std::string_view piece, std::string& out) {
  const bool counts = tokens_ >= sampling_->min_tokens;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    state_ = stops_.next(state_, piece[i]);
    const std::int32_t match = counts ? stops_.match(state_) : -1;
    if (match < 0) continue;
    held_.append(piece, 0, i + 1);
    if (!sampling_->include_stop) held_.resize(held_.size() - stops_.length(match));
    out += held_;
    held_.clear();
    return Stop{.text = match};
  }
  held_ += piece;
  const std::size_t free = held_.size() - stops_.depth(state_);
  out.append(held_, 0, free);
  held_.erase(0, free);
  return std::nullopt;
}

// Follow the answer token by token.
Delta TextStream::push(std::int32_t token) {
  if (stop_) return {};
  Delta delta;
  ++tokens_;
  piece_.clear();
  const bool end = std::ranges::find(ends_, token) != ends_.end();
  if (!end || sampling_->include_stop) detokenizer_.push(token, piece_);
  if (end) detokenizer_.finish(piece_);
  stop_ = scan(piece_, delta.text);
  if (end) {
    delta.text += held_;
    held_.clear();
    if (!stop_) stop_ = Stop{.token = token};
  }
  delta.stop = stop_;
  return delta;
}

Delta TextStream::finish() {
  if (stop_) return {};
  Delta delta;
  piece_.clear();
  detokenizer_.finish(piece_);
  stop_ = scan(piece_, delta.text);
  delta.text += held_;
  held_.clear();
  delta.stop = stop_;
  return delta;
}

}  // namespace rose::infer
