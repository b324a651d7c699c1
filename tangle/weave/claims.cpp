#include "claims.h"

#include "html.h"

namespace weave {

std::string_view grade_word(std::string_view grade) {
  if (grade == "D") return "Disclosed";
  if (grade == "C") return "Confirmed artifact";
  if (grade == "R") return "Reproduced";
  if (grade == "I") return "Inferred";
  return "Unknown";
}

std::string page_of_subject(std::string_view subject) { return "facts/" + slug(subject) + ".html"; }

std::string place_of_fact(const Fact& fact) {
  return page_of_subject(fact.get("subject")) + "#" + std::string(fact.get("id"));
}

std::string source_html(std::string_view source, std::string_view title) {
  std::string address;
  if (source.starts_with("http")) address = source;
  else if (source.starts_with("arXiv:")) address = "https://arxiv.org/abs/" + std::string(source.substr(6));
  else if (source.starts_with("doi:")) address = "https://doi.org/" + std::string(source.substr(4));
  else if (source.starts_with("github.com/") && source.find(' ') == std::string_view::npos) {
    const std::size_t at = source.find('@');
    address = "https://" + std::string(source.substr(0, at));
    if (at != std::string_view::npos) address += "/tree/" + std::string(source.substr(at + 1));
  }
  const std::string words = escaped(title.empty() ? source : title);
  return address.empty() ? words : "<a href=\"" + escaped(address) + "\">" + words + "</a>";
}

std::string fact_note(const Fact& fact, std::string_view page) {
  const std::string_view grade = fact.get("grade");
  std::string out = "<a class=\"what\" href=\"" + escaped(relative(page, place_of_fact(fact))) + "\">" +
                    std::string(grade_word(grade)) + "</a> · ";
  if (grade == "I") out += escaped(fact.get("assumptions"));
  else if (grade == "U") out += "Searched: " + escaped(fact.get("searched"));
  else if (grade == "R") out += escaped(fact.get("record"));
  else {
    out += source_html(fact.get("source"), fact.get("title"));
    out += ", " + escaped(fact.get("locator"));
  }
  if (!fact.get("date").empty()) out += " (" + escaped(fact.get("date")) + ")";
  if (fact.get("checked") == "secondary") out += " <em>Not yet verified at the source.</em>";
  return out;
}

std::string fact_words(const Fact& fact) {
  std::string out(grade_word(fact.get("grade")));
  out += ". " + std::string(fact.get("claim"));
  if (!fact.get("title").empty()) out += " " + std::string(fact.get("title")) + ".";
  return out;
}

std::string side_note(std::string_view id, std::string_view badge, std::string_view about, std::string_view note) {
  std::string out = "<span class=\"tip\"><label for=\"" + std::string(id) + "\" class=\"grade " + std::string(badge) +
                    "\" title=\"" + escaped(about) + "\">" + std::string(badge) +
                    "</label><input type=\"checkbox\" id=\"" + std::string(id) +
                    "\" aria-label=\"Show the note: " + escaped(about) + "\"><small class=\"side\">";
  out += "<span class=\"grade " + std::string(badge) + "\" aria-hidden=\"true\">" + std::string(badge) + "</span> ";
  return out.append(note) + "</small></span>";
}

}  // namespace weave
