// Bring text into Unicode's composed normal form.

#pragma once

#include <string>
#include <string_view>

namespace rose::text {

/// True when `text` is certainly in normal form C (UAX #15's quick check); false may mean "look
/// closer".
bool quick_check_nfc(std::string_view text);

/// Normal form C of `text`; bytes that are not UTF-8 are kept as they are.
std::string nfc(std::string_view text);

}  // namespace rose::text
