// Apply operators.

#include <algorithm>
#include <cmath>

#include "rose/text/template_natives.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

[[noreturn]] void unsupported(std::string_view op, const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) fail(a.text());
  if (b.is(Kind::undefined)) fail(b.text());
  std::string hint;
  if (op == "+" && (a.is(Kind::string) || b.is(Kind::string))) {
    hint = "~ joins texts and converts what is none";
  }
  fail("cannot apply " + std::string(op) + " to '" + std::string(type_name(a)) + "' and '" +
           std::string(type_name(b)) + "'",
       std::move(hint));
}

Value checked(bool overflow, std::int64_t result) {
  if (overflow) fail("the result does not fit a 64-bit integer");
  return Value(result);
}

// Divide as Python does: towards minus infinity.
Value floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  const std::int64_t quotient = a / b;
  return Value(quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
}

Value floor_modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("modulo by zero");
  if (b == -1) return Value(std::int64_t{0});
  const std::int64_t rest = a % b;
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

double real_modulo(double a, double b) {
  if (b == 0) fail("modulo by zero");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double real_floor_divide(double a, double b) {
  if (b == 0) fail("division by zero");
  const double rest = real_modulo(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

// Raise to a power: integers stay integers where Python keeps them.
Value power(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer() && b.integer() >= 0) {
    std::int64_t result = 1, base = a.integer();
    bool overflow = false;
    for (std::int64_t n = b.integer(); n > 0; n >>= 1) {
      if (n & 1) overflow = __builtin_mul_overflow(result, base, &result) || overflow;
      if (n > 1) {
        const bool squared_too_large = __builtin_mul_overflow(base, base, &base);
        overflow = overflow || squared_too_large;
      }
    }
    return checked(overflow, result);
  }
  const double x = a.real(), y = b.real();
  if (x == 0 && y < 0) fail("zero cannot be raised to a negative power");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y)) {
    fail("a negative number cannot be raised to a fraction");
  }
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) fail("the power is too large");
  return Value(result);
}

// Repeat a text or a sequence, checked before it is made.
Value repeat(const Value& sequence, std::int64_t times, Meter& meter) {
  const std::uint64_t n = times > 0 ? static_cast<std::uint64_t>(times) : 0;
  const bool text = sequence.is(Kind::string);
  const std::uint64_t unit =
      text ? sequence.text().size() : sequence.items().size() * sizeof(Value);
  if (unit != 0 && n > UINT64_MAX / unit) meter.will_make(UINT64_MAX / 2);
  meter.will_make(unit * n);
  if (text) {
    std::string out;
    out.reserve(unit * n);
    for (std::uint64_t i = 0; unit != 0 && i < n; ++i) out += sequence.text();
    return Value(std::move(out));
  }
  std::vector<Value> items;
  for (std::uint64_t i = 0; unit != 0 && i < n; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return sequence.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

bool is_sequence(const Value& v) {
  return v.is(Kind::string) || v.is(Kind::list) || v.is(Kind::tuple);
}

}  // namespace

// Add numbers; join texts and sequences.
Value add(const Value& a, const Value& b, Meter& meter) {
  if (a.is_integer() && b.is_integer()) {
    std::int64_t sum = 0;
    const bool overflow = __builtin_add_overflow(a.integer(), b.integer(), &sum);
    return checked(overflow, sum);
  }
  if (a.is_number() && b.is_number()) return Value(a.real() + b.real());
  if (a.kind() != b.kind() || !is_sequence(a)) unsupported("+", a, b);
  if (a.is(Kind::string)) {
    meter.will_make(a.text().size() + b.text().size());
    return Value(a.text() + b.text());
  }
  meter.work((a.items().size() + b.items().size()) * sizeof(Value));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

// Apply an operator to numbers, or to what else has it.
Value arithmetic(std::string_view op, const Value& a, const Value& b, Meter& meter) {
  if (op == "+") return add(a, b, meter);
  if (op == "*" && is_sequence(a) && b.is_integer()) return repeat(a, b.integer(), meter);
  if (op == "*" && is_sequence(b) && a.is_integer()) return repeat(b, a.integer(), meter);
  if (op == "%" && a.is(Kind::string)) {
    return Value(percent_format(a.text(), b, meter));
  }
  if (!a.is_number() || !b.is_number()) unsupported(op, a, b);
  if (op == "**") return power(a, b);
  if (op == "/") {
    if (b.real() == 0) fail("division by zero");
    return Value(a.real() / b.real());
  }
  if (a.is_integer() && b.is_integer()) {
    const std::int64_t x = a.integer(), y = b.integer();
    std::int64_t result = 0;
    if (op == "-") {
      const bool overflow = __builtin_sub_overflow(x, y, &result);
      return checked(overflow, result);
    }
    if (op == "*") {
      const bool overflow = __builtin_mul_overflow(x, y, &result);
      return checked(overflow, result);
    }
    return op == "//" ? floor_divide(x, y) : floor_modulo(x, y);
  }
  if (op == "-") return Value(a.real() - b.real());
  if (op == "*") return Value(a.real() * b.real());
  return Value(op == "//" ? real_floor_divide(a.real(), b.real())
                          : real_modulo(a.real(), b.real()));
}

Value negate(const Value& value, bool minus) {
  if (value.is(Kind::undefined)) fail(value.text());
  if (!value.is_number()) fail("a sign before '" + std::string(type_name(value)) + "'");
  if (value.is_integer()) {
    return minus ? checked(value.integer() == INT64_MIN, -value.integer()) : Value(value.integer());
  }
  return minus ? Value(-value.real()) : value;
}

// Compare by any operator.
bool contains(const Value& in, const Value& value, Meter& meter) {
  if (in.is(Kind::string)) {
    if (!value.is(Kind::string)) {
      fail("only a text can be in a text, not '" + std::string(type_name(value)) + "'");
    }
    meter.work(in.text().size() + value.text().size());
    return find(in.text(), value.text()) != std::string::npos;
  }
  if (in.is(Kind::dict)) return in.as<Dict>().find(value) != nullptr;
  if (in.is(Kind::view) && in.as<View>().what == View::What::keys) {
    return in.as<View>().dict.as<Dict>().find(value) != nullptr;
  }
  if (!iterable(in)) fail("'" + std::string(type_name(in)) + "' object has no members for 'in'");
  Cursor cursor(in, meter);
  while (const auto item = cursor.next()) {
    if (equal(*item, value, meter)) return true;
  }
  return false;
}

bool compare(std::string_view op, const Value& a, const Value& b, Meter& meter) {
  if (op == "==") return equal(a, b, meter);
  if (op == "!=") return !equal(a, b, meter);
  if (op == "in") return contains(b, a, meter);
  if (op == "not in") return !contains(b, a, meter);
  const std::partial_ordering result = order(a, b, meter);
  if (op == "<") return result < 0;
  if (op == "<=") return result <= 0;
  if (op == ">") return result > 0;
  return result >= 0;
}

// Replace, knowing the size of the result before it is made.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t count, Meter& meter) {
  Writer out(meter);
  meter.work(text.size());
  std::size_t begin = 0;
  for (std::int64_t done = 0; count < 0 || done < count; ++done) {
    if (from.empty()) {  // between all characters, and around them
      out << to;
      if (begin >= text.size()) return out.take();
      std::size_t next = begin;
      next_code_point(text, next);
      out << text.substr(begin, next - begin);
      begin = next;
      continue;
    }
    const std::size_t at = find(text, from, begin);
    if (at == text.npos) break;
    out << text.substr(begin, at - begin) << to;
    begin = at + from.size();
  }
  out << text.substr(begin);
  return out.take();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    const bool ends =
        (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

// Insist on an integer or a text.
std::int64_t to_index(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) fail(value.text());
  if (!value.is_integer()) {
    fail(std::string(what) + " must be an integer, not '" + std::string(type_name(value)) + "'");
  }
  return value.integer();
}

const std::string& to_text(const Value& value, std::string_view what) {
  if (!value.is(Kind::string)) {
    fail(std::string(what) + " must be a text, not '" + std::string(type_name(value)) + "'");
  }
  return value.text();
}

}  // namespace rose::text::jinja
