#include "live.h"

#include <stdexcept>

#include "html.h"

namespace weave {
namespace {

std::string cell(const json::value& given) {
  if (!given.is_array()) return escaped(view(given.as_string()));
  std::string out;
  for (const json::value& each : given.get_array()) {
    const json::array& token = each.as_array();
    out += "<span class=\"token\">" + escaped(view(token.at(0).as_string())) + "<small>" +
           escaped(view(token.at(1).as_string())) + "</small></span> ";
  }
  return out;
}

/// JSON inside an element ends where the element does, so nothing in it may look like an end.
std::string harmless(const json::value& state) {
  std::string out;
  for (const char c : json::serialize(state)) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

}  // namespace

std::string live_figure(std::string_view kind, const json::value& recorded) try {
  const json::object& given = recorded.as_object();
  std::string out =
      "<rose-figure kind=\"" + escaped(kind) +
      "\"><div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"Recorded state of the figure " +
      escaped(kind) + "\"><table><thead><tr>";
  for (const json::value& column : given.at("columns").as_array())
    out += "<th scope=\"col\">" + escaped(view(column.as_string())) + "</th>";
  out += "</tr></thead><tbody>";
  for (const json::value& row : given.at("rows").as_array()) {
    out += "<tr>";
    for (const json::value& each : row.as_array()) out += "<td>" + cell(each) + "</td>";
    out += "</tr>";
  }
  out += "</tbody></table></div><p class=\"provenance\">Recorded on " +
         escaped(view(given.at("recorded").as_string())) + " by <code>" + escaped(view(given.at("by").as_string())) +
         "</code></p><script type=\"application/json\">";
  return out + harmless(given.at("state")) + "</script></rose-figure>";
} catch (const std::exception&) {
  throw std::runtime_error("a recorded state has columns, rows of as many cells, recorded, by and state");
}

}  // namespace weave
