// Count parameters, bytes and operations before running anything.

#pragma once

#include <cstdint>

#include "rose/model/files/config.h"

namespace rose::model {

/// Parameters in all, and those that a token is multiplied with (matrices and head; not the lookup tables).
std::int64_t parameter_count(const Config& config);
std::int64_t matrix_parameters(const Config& config);

/// Keys and values of one position in every layer.
std::int64_t kv_bytes_per_token(const Config& config, std::int64_t element_bytes = 4);

/// Floating point operations to process one token that attends to `context` keys, its own included;
/// a multiply and an add are two. With `head`, the logits are computed too.
std::int64_t forward_flops(const Config& config, std::int64_t context, bool head = true);

}  // namespace rose::model
