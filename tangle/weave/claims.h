// How a number in the text is known: the badge beside it and the note in the margin.
#pragma once

#include <string>
#include <string_view>

#include "stores.h"

namespace weave {

/// "Disclosed", "Confirmed artifact", …
std::string_view grade_word(std::string_view grade);

/// The page of facts about a subject.
std::string page_of_subject(std::string_view subject);
std::string place_of_fact(const Fact& fact);

/// A source, linked when it is an address, an arXiv number or a repository.
std::string source_html(std::string_view source, std::string_view title);

/// What the margin says of a fact: grade, source, locator, date.
std::string fact_note(const Fact& fact, std::string_view page);
/// The same in a line of plain words.
std::string fact_words(const Fact& fact);

/// A badge that unfolds `note` where the margin is too narrow. `id` is unique on the page.
std::string side_note(std::string_view id, std::string_view badge, std::string_view about, std::string_view note);

}  // namespace weave
