// The faces, cut down to the characters of the pages by fonts.py; it runs only when those have changed.
#pragma once

#include <string>

#include "pages.h"

namespace weave {

/// Puts the faces into `folder`/assets/fonts. `cache` keeps what was made for each set of characters.
void add_fonts(const Site& site, const std::string& folder, const std::string& python, const std::string& script,
               const std::string& cache);

}  // namespace weave
