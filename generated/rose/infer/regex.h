// Make a language of a regular expression.

#pragma once

#include <string_view>

#include "rose/infer/char_set.h"

namespace rose::infer {

/// `whole`: the text is the match; otherwise a match somewhere in it, as `^` and `$` at the ends of
/// an outer alternative restrict. Throws core::Error (invalid_argument, unsupported) with the place.
Language::Expression regex(Language& language, std::string_view pattern, Spelling spelling,
                           bool whole);

}  // namespace rose::infer
