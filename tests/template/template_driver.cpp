// Renders templates for the oracle test: one JSON object {template, context, now?} per line of
// standard input gives one {ok, text} or {ok, error} per line of standard output.
#include <iostream>
#include <string>

#include <boost/json.hpp>

#include "rose/core/error.h"
#include "rose/text/template.h"

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    boost::json::object answer;
    try {
      boost::json::parse_options options;
      options.max_depth = 1000;
      const auto request = boost::json::parse(line, {}, options).as_object();
      const rose::text::ChatTemplate chat_template(std::string(request.at("template").as_string()));
      const std::time_t now = request.contains("now") ? request.at("now").as_int64() : 0;
      answer["text"] = chat_template.render(request.at("context").as_object(), {}, now);
      answer["ok"] = true;
    } catch (const std::exception& error) {
      answer["ok"] = false;
      answer["error"] = error.what();
    }
    std::cout << boost::json::serialize(answer) << "\n";
  }
}
