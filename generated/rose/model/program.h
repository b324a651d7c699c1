// Say in which order a forward pass does what.

#pragma once

#include <cstdint>

#include "rose/model/files/config.h"

namespace rose::model {

/// The forward pass, the only one, whoever computes it. `on` performs each step on buffers of its own; x is the residual
/// stream, y what a half of a block computed and has not added yet. A step that adds y to x comes with the norm that
/// reads the sum, because a processor may do both in one go.
template <class Operations>
void run_forward(const Config& config, Operations&& on) {
  on.embed();  // x
  if (config.family == Family::gpt2) {
    on.add_positions();  // x += learned vectors
  } else {
    on.prepare_rotation();  // cos and sin of every token
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    on.enter(layer);
    on.norm_attention(layer > 0);  // x += y after the first layer; n = norm(x)
    on.project_in();               // q, k, v of n
    on.place_keys();         // norm and turn q and k as the family does; append k and v to a cache
    on.attend();             // a
    on.project_out();        // y = o of a
    on.norm_feed_forward();  // x += y; n = norm(x)
    on.widen();              // f = activation of gate and up of n
    on.narrow();             // y = down of f
  }
  on.norm_final();  // x += y; hidden = norm(x)
}

}  // namespace rose::model
