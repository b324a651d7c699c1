// Say who owns pages on their way.

#include "rose/serve/handover.h"

namespace rose::serve {

std::uint8_t Handover::give_up(std::uint8_t actions, bool sender_has_stopped) {
  if (one_sided_ && !sender_has_stopped) {
    state_ = State::quarantined;
    return static_cast<std::uint8_t>(actions | stop_sender);
  }
  state_ = State::over;
  return static_cast<std::uint8_t>(actions | release_pages |
                                   (sender_has_stopped ? nothing : stop_sender));
}

std::uint8_t Handover::on(HandoverEvent event) {
  using enum HandoverEvent;
  switch (state_) {
    case State::asked:
    case State::filling:
      if (event == block) state_ = State::filling;
      if (event == complete) {
        state_ = State::handed;
        return publish_pages | submit_question;
      }
      if (event == broken || event == lost) return give_up(submit_question, true);
      if (event == late) return give_up(submit_question, false);
      if (event == cancelled) return give_up(tell_cancelled, false);
      return nothing;
    case State::handed:
      if (event != admitted) return nothing;  // a cancellation is the engine's business now
      state_ = State::over;
      return release_pages;
    case State::quarantined:
      if (event != complete && event != broken && event != lost) return nothing;
      state_ = State::over;
      return release_pages;
    case State::over: return nothing;
  }
  return nothing;
}

}  // namespace rose::serve
