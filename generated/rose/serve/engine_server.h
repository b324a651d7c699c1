// Answer a front over a socket.

#pragma once

#include "rose/serve/local_backend.h"

namespace rose::serve {

/// Returns when the other side has closed the socket, and everything that ran for it is cancelled. Throws core::Error for a front of
/// another version, or one that breaks the protocol.
void serve_engine(int socket, LocalBackend& backend);

}  // namespace rose::serve
