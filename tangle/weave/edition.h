// The book as one document: EPUB by Pandoc, and a single page that Chromium prints as PDF.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "filter.h"
#include "pages.h"

namespace weave {

/// One HTML page with all chapters, for print: the ids of a chapter get its name in front, and links between chapters
/// become links within the page.
std::string one_page(const Book& book, const std::vector<std::string>& bodies, std::string_view style);

}  // namespace weave
