// Say who owns pages on their way.

#pragma once

#include <cstdint>

namespace rose::serve {

/// What a transfer must be told, or a clock has seen.
enum class HandoverEvent : std::uint8_t {
  block,      ///< a part arrived
  complete,   ///< the sender is done, and nothing is missing
  broken,     ///< the sender has stopped: it could not, or said it was done with something missing
  late,       ///< nothing arrived for too long
  lost,       ///< the sender is gone
  cancelled,  ///< nobody wants the answer
  admitted    ///< the engine has answered the question with a first event, or refused it
};

/// What is to be done now, in this order; bits.
enum HandoverAction : std::uint8_t {
  nothing = 0,
  stop_sender = 1,
  publish_pages = 2,
  submit_question = 4,  ///< to the own engine, with what it has
  tell_cancelled = 8,
  release_pages = 16
};

class Handover {
 public:
  enum class State : std::uint8_t { asked, filling, handed, quarantined, over };
  /// One-sided: the sender writes into our pages itself.
  explicit Handover(bool one_sided) : one_sided_(one_sided) {}
  std::uint8_t on(HandoverEvent event);  ///< returns actions
  State state() const { return state_; }

 private:
  std::uint8_t give_up(std::uint8_t actions, bool sender_has_stopped);
  State state_ = State::asked;
  bool one_sided_;
};

}  // namespace rose::serve
