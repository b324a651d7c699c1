// Ask for an answer, and be told of it.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/error.h"
#include "rose/infer/sampling.h"

namespace rose::infer {

/// Why a choice ended.
enum class Finish : std::uint8_t {
  stop,       ///< a stop token, a stop string, or the end of a grammar
  length,     ///< max_tokens, or the longest context
  cancelled,  ///< somebody asked
  error       ///< Event::error says which
};
std::string_view name(Finish finish);  ///< "stop", "length", …

/// What was used, in tokens, true at every event.
struct Usage {
  std::int64_t prompt = 0, cached = 0 /* of the prompt, found and not computed */, completion = 0;
};

struct Alternative {
  std::int32_t token = -1;
  float logprob = 0.0f;
};

// Something that happened to a choice.
struct Event {
  std::uint64_t request = 0;  ///< the engine's number for it
  std::string_view id{};      ///< the caller's
  int choice = 0;
  std::span<const std::int32_t> tokens{};  ///< new ones; the last one may be a stop token
  std::span<const float> logprobs{};       ///< of the tokens, when asked for
  std::span<const Alternative> top{};      ///< [tokens, top_count], likeliest first, when asked for
  int top_count = 0;
  bool of_prompt = false;   ///< the tokens are the prompt's; its first token has logprob 0
  std::string_view text{};  ///< valid UTF-8; may be empty, and may belong to earlier tokens
  std::uint64_t weights_version = 0;   ///< of the weights that computed the tokens
  std::optional<Finish> finish{};      ///< set in the last event of a choice
  const core::Error* error = nullptr;  ///< when finish is error
  std::span<const float> embedding{};  ///< in the last event of a request for one
  Usage usage{};
  std::int64_t queued_us = 0;  ///< the request waited so long for its first step
};

/// One vector for a text, made of the hidden states of its tokens.
struct Pooling {
  enum class Kind : std::uint8_t { last, mean } kind = Kind::last;
  bool normalize = true;  ///< to length 1
};

struct Request {
  std::string id;  ///< the caller's name for it; may be empty
  std::vector<std::int32_t> prompt;
  Sampling sampling;
  int priority = 0;                ///< more is sooner, under the priority policy
  std::string adapter;             ///< the name of a loaded one; empty: the model as it is
  std::string salt;                ///< requests share cached prefixes only with equal salts
  std::optional<Pooling> pooling;  ///< set: an embedding is wanted, and no answer
  bool text = true;                ///< false: tokens only, nothing is decoded
  /// Makes the sampling's grammar, on a thread of the engine's that takes no steps. What it throws ends this request.
  std::function<std::shared_ptr<const Grammar>()> prepare;
  std::function<void(const Event&)>
      on_event;  ///< called on the engine's delivery thread, one at a time
};

}  // namespace rose::infer
