// Read prompts for another engine.

#pragma once

#include "rose/infer/kv_transfer.h"

namespace rose::serve {

/// Answers one receiver until it closes the socket; everything that ran for it is then cancelled. The engine must be started.
/// Throws core::Error for a receiver that breaks the protocol.
void serve_prefill(int socket, infer::Engine& engine);

}  // namespace rose::serve
