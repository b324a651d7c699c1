// The site on disk: written beside the old one, then put in its place, so that a broken build leaves the old one.
#pragma once

#include <functional>
#include <string>

#include "pages.h"

namespace weave {

/// Writes every file of `site` into a new folder, lets `finish` work in it, and swaps it with `folder`.
void publish(const Site& site, const std::string& folder, const std::function<void(const std::string&)>& finish);

std::string sitemap(const Site& site, const std::string& base_url);
std::string llms_txt(const Book& book, const std::string& base_url);

}  // namespace weave
