// Writes JSON text front to back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text.h"

namespace tangle {

class Json {
 public:
  Json& open(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  Json& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  Json& key(std::string_view name) {
    separate();
    append_json_string(text_, name);
    text_ += ':';
    first_ = true;
    return *this;
  }
  Json& value(std::string_view text) {
    separate();
    append_json_string(text_, text);
    return *this;
  }
  Json& value(std::int64_t number) {
    separate();
    text_ += std::to_string(number);
    return *this;
  }
  Json& value(bool truth) {
    separate();
    text_ += truth ? "true" : "false";
    return *this;
  }
  /// A line break between items, so that the text can be looked at and compared.
  Json& line() {
    separate();
    text_ += '\n';
    first_ = true;
    return *this;
  }
  std::string take() { return std::move(text_) + "\n"; }

 private:
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  std::string text_;
  bool first_ = true;
};

}  // namespace tangle
