// `[@key, section 4.1; @other]` in text becomes Pandoc's citation nodes; commonmark_x leaves it as words.
#pragma once

#include <string>
#include <vector>

#include "json.h"

namespace weave {

/// Replaces the citations among some inlines, and appends their keys in order to `keys`.
void make_citations(json::array& inlines, std::vector<std::string>& keys);

}  // namespace weave
