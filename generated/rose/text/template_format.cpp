// The % operator of texts.

#include "rose/text/template_format.h"

#include <algorithm>
#include <cmath>

#include "rose/text/template_unicode.h"

namespace rose::text::jinja {

namespace {

// Read flags, width, precision and letter.
Spec read_percent_spec(const std::string& format, std::size_t& at) {
  Spec spec;
  bool left = false;
  for (; at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos;
       ++at) {
    const char flag = format[at];
    if (flag == '-') left = true;
    if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
    if (flag == '#') spec.alternate = true;
    if (flag == '0') spec.zero = true;
  }
  if (at < format.size() && format[at] == '*') fail("a width of * is not supported");
  spec.width = read_number(format, at);
  if (at < format.size() && format[at] == '.') spec.precision = read_number(format, ++at);
  if (at >= format.size()) fail("the format ends after %");
  spec.type = format[at++];
  if (left) spec.align = '<', spec.zero = false;
  return spec;
}

// Shape one value.
std::string percent_field(Value value, Spec spec, Meter& meter) {
  if (std::string_view("sra").find(spec.type) != std::string_view::npos) {
    spec.zero = false;
    if (spec.align == 0) spec.align = '>';
    return format_text(spec.type == 's' ? str(value, meter) : repr(value, meter), spec, meter);
  }
  if (std::string_view("diuxXofFeEgG").find(spec.type) == std::string_view::npos) {
    fail(std::string("unsupported format %") + spec.type);
  }
  if (!value.is_number()) fail(std::string("%") + spec.type + " needs a number");
  if (value.is(Kind::real) && (spec.type == 'd' || spec.type == 'i' || spec.type == 'u')) {
    if (!(std::fabs(value.real()) < 9.2e18)) fail("the number does not fit an integer");
    value = Value(static_cast<std::int64_t>(value.real()));
  }
  return format_number(value, spec, meter);
}

}  // namespace

// Format as the % operator of texts does.
std::string percent_format(const std::string& format, const Value& arguments, Meter& meter) {
  Writer out(meter);
  std::size_t used = 0;
  bool named = false;
  const bool tuple = arguments.is(Kind::tuple);
  const auto next = [&]() -> Value {
    if (tuple && used < arguments.items().size()) return arguments.items()[used++];
    if (!tuple && used++ == 0) return arguments;
    fail("there are too few values for the format");
  };
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t percent = std::min(format.find('%', at), format.size());
    out << std::string_view(format).substr(at, percent - at);
    if (percent == format.size()) break;
    at = percent + 1;
    Value value;
    bool given = false;
    if (at < format.size() && format[at] == '(') {
      const std::size_t close = format.find(')', at);
      if (close == format.npos || !arguments.is(Kind::dict)) fail("%(name) needs a dictionary");
      const Value* found =
          arguments.as<Dict>().member(std::string_view(format).substr(at + 1, close - at - 1));
      if (found == nullptr) fail("a key of the format is not in the dictionary");
      value = *found;
      given = named = true;
      at = close + 1;
    }
    const Spec spec = read_percent_spec(format, at);
    if (spec.type == '%') {
      out << "%";
      continue;
    }
    if (!given) value = next();
    out << percent_field(std::move(value), spec, meter);
  }
  const bool subscriptable = arguments.is(Kind::dict) || arguments.is(Kind::list) ||
                             arguments.is(Kind::range) || arguments.is(Kind::undefined);
  if (!named && !subscriptable && used < (tuple ? arguments.items().size() : 1)) {
    fail("there are more values than the format takes");
  }
  return out.take();
}

}  // namespace rose::text::jinja
