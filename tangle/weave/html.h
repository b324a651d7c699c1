// Text into HTML, and pages out of templates.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace weave {

void escape_to(std::string& out, std::string_view words);
std::string escaped(std::string_view words);

/// The address of `to` as seen from the page `from`, both from the site's root: no leading slash, so that the site works
/// in any folder.
std::string relative(std::string_view from, std::string_view to);

/// A template with every {{name}} replaced. A name that is missing is a mistake of ours and throws.
std::string filled(std::string_view page, const std::map<std::string, std::string, std::less<>>& values);

/// "3 chapters", "1 chapter".
std::string counted(std::size_t count, std::string_view one, std::string_view many);

/// Words as a fragment: lower case, hyphens for all else.
std::string slug(std::string_view words);

}  // namespace weave
