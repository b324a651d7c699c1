// Give every input of every block words of its own.

#pragma once

#include <cstddef>

#include "rose/kernels/dropout.h"
#include "rose/model/adapter.h"

namespace rose::model {

/// Of a pass, whose number is the stream: the dropout of one input of one block. Queries, keys and values have one input, gate and up another.
inline kernels::Dropout dropout_of(kernels::Dropout pass, std::size_t layer, Linear which) {
  constexpr std::size_t inputs = 4;
  const std::size_t input = which == Linear::o                             ? 1
                            : which == Linear::down                        ? 3
                            : which == Linear::gate || which == Linear::up ? 2
                                                                           : 0;
  pass.stream = pass.stream << 32U | (layer * inputs + input);
  return pass;
}

}  // namespace rose::model
