// Write JSON as Python's json.dumps does.

#include <algorithm>
#include <cmath>

#include "rose/text/template_natives.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

// Hold what json.dumps was asked for.
class JsonWriter {
 public:
  JsonWriter(bool ensure_ascii, const std::optional<std::string>& indent, std::string_view comma,
             std::string_view colon, bool sort_keys, Meter& meter)
      : out_(meter),
        meter_(&meter),
        indent_(indent),
        comma_(comma),
        colon_(colon),
        ensure_ascii_(ensure_ascii),
        sort_keys_(sort_keys) {}

  void write(const Value& value, int depth);
  std::string take() { return out_.take(); }

 private:
  void write_string(std::string_view text);
  void write_dict(const Dict& dict, int depth);
  void new_line(int depth) {
    if (!indent_) return;
    out_ << "\n";
    for (int i = 0; i < depth; ++i) out_ << *indent_;
  }

  Writer out_;
  Meter* meter_;
  const std::optional<std::string>& indent_;
  std::string_view comma_, colon_;
  bool ensure_ascii_, sort_keys_;
};

std::string json_real(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return real_repr(value);
}

// Escape what json.dumps escapes: no more, and no HTML.
void JsonWriter::write_string(std::string_view text) {
  static constexpr std::string_view kPlain = "\b\f\n\r\t\"\\", kLetter = "bfnrt\"\\";
  out_ << "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const std::size_t letter = c < 0x80 ? kPlain.find(static_cast<char>(c)) : kPlain.npos;
    char escaped[16];
    if (letter != kPlain.npos) {
      std::snprintf(escaped, sizeof escaped, "\\%c", kLetter[letter]);
    } else if (c >= 0x10000 && ensure_ascii_) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x\\u%04x",
                    static_cast<unsigned>(0xD7C0 + (c >> 10)),
                    static_cast<unsigned>(0xDC00 + (c & 0x3FF)));
    } else if (c < 0x20 || (c >= 0x7F && ensure_ascii_)) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
    } else {
      out_ << text.substr(begin, at - begin);
      continue;
    }
    out_ << escaped;
  }
  out_ << "\"";
}

// Write a value with Python's separators.
void JsonWriter::write(const Value& value, int depth) {
  meter_->step();
  switch (value.kind()) {
    case Kind::none: out_ << "null"; return;
    case Kind::boolean: out_ << (value.integer() != 0 ? "true" : "false"); return;
    case Kind::integer: out_ << std::to_string(value.integer()); return;
    case Kind::real: out_ << json_real(value.real()); return;
    case Kind::string: write_string(value.text()); return;
    case Kind::dict: write_dict(value.as<Dict>(), depth); return;
    case Kind::list:
    case Kind::tuple: {
      if (value.items().empty()) {
        out_ << "[]";
        return;
      }
      out_ << "[";
      for (bool first = true; const Value& item : value.items()) {
        if (!first) out_ << comma_;
        first = false;
        new_line(depth + 1);
        write(item, depth + 1);
      }
      new_line(depth);
      out_ << "]";
      return;
    }
    case Kind::undefined: fail("an undefined value has no JSON form: " + value.text());
    default:
      fail("'" + std::string(type_name(value)) + "' has no JSON form",
           value.is(Kind::iterator) || value.is(Kind::view) ? "make it a list: x | list | tojson"
                                                            : "");
  }
}

// Write the members of a dictionary.
void JsonWriter::write_dict(const Dict& dict, int depth) {
  if (dict.entries.empty()) {
    out_ << "{}";
    return;
  }
  auto entries = dict.entries;
  if (sort_keys_) {
    std::stable_sort(entries.begin(), entries.end(), [this](const auto& a, const auto& b) {
      return order(a.first, b.first, *meter_) < 0;
    });
  }
  out_ << "{";
  for (bool first = true; const auto& [key, value] : entries) {
    if (!first) out_ << comma_;
    first = false;
    new_line(depth + 1);
    switch (key.kind()) {
      case Kind::string: write_string(key.text()); break;
      case Kind::none: write_string("null"); break;
      case Kind::boolean: write_string(key.integer() != 0 ? "true" : "false"); break;
      case Kind::integer: write_string(std::to_string(key.integer())); break;
      case Kind::real: write_string(json_real(key.real())); break;
      default: fail("the keys of a JSON object must be texts or numbers");
    }
    out_ << colon_;
    write(value, depth + 1);
  }
  new_line(depth);
  out_ << "}";
}

}  // namespace

std::string to_json(const Value& value, bool ensure_ascii, const std::optional<std::string>& indent,
                    std::string_view comma, std::string_view colon, bool sort_keys, Meter& meter) {
  JsonWriter writer(ensure_ascii, indent, comma, colon, sort_keys, meter);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace rose::text::jinja
