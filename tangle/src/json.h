// Writes JSON text front to back.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "text.h"

namespace tangle {

class Json {
 public:
  Json& open(char bracket) { return put({&bracket, 1}, true); }
  Json& close(char bracket) { return put_here({&bracket, 1}, false); }
  Json& key(std::string_view name) { return put(json_string(name) + ':', true); }
  Json& value(std::string_view text) { return put(json_string(text), false); }
  Json& value(const char* text) { return value(std::string_view(text)); }
  Json& value(bool truth) { return put(truth ? "true" : "false", false); }
  Json& value(std::integral auto number) { return put(std::to_string(number), false); }
  Json& field(std::string_view name, const auto& content) { return key(name).value(content); }
  /// A line break between items, so that the text can be looked at and compared.
  Json& line() { return put("\n", true); }
  std::string take() { return std::move(text_) + "\n"; }

 private:
  /// Text after a comma, unless it is the first in its list; `first` says whether the next will be.
  Json& put(std::string_view text, bool first) {
    if (!first_) text_ += ',';
    return put_here(text, first);
  }
  Json& put_here(std::string_view text, bool first) {
    text_ += text;
    first_ = first;
    return *this;
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace tangle
