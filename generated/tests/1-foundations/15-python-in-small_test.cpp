// Tests of the chapter "Python in small: the values of a template".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "rose/text/template_filters.h"
#include "rose/text/template_format.h"
#include "rose/text/template_limits.h"
#include "rose/text/template_natives.h"
#include "rose/text/template_unicode.h"
#include "rose/text/template_value.h"
#include "rose/text/unicode.h"

namespace rose::text::jinja {
namespace {

// Case tables decode as by hand, and know the hard letters.
TEST(TemplateValues, CaseTablesDecodeAsByHand) {
  EXPECT_TRUE(packed_cases().to_upper.starts_with("hDaB_B"));
  PackedNumbers numbers("hDaB_B");
  EXPECT_EQ(numbers.next(), 97u);
  EXPECT_EQ(numbers.next(), 26u);
  EXPECT_EQ(numbers.next(), 1u);
  EXPECT_EQ(numbers.next_signed(), -32);
  EXPECT_TRUE(numbers.done());
  EXPECT_EQ(upper("straße"), "STRASSE");
  EXPECT_EQ(lower("ΣΑΣ ΣΑΣ"), "σας σας");
  std::string title;
  append_title(title, U'ǆ');
  EXPECT_EQ(title, "ǅ");
}

// Calls bind as Python's do.
struct TestHost final : Host {
  using Host::Host;
  std::int64_t now() const override { return 0; }
  Value make_namespace(Dict) override { return Value(); }
};

/// What a filter makes of a value, printed; or the message of its failure.
std::string filtered(const Value& value, const char* name, Arguments arguments) {
  TestHost host{Limits{}};
  try {
    const Value result = call_native(host, *find_filter(name), value, arguments);
    const bool lazy = result.is(Kind::iterator);
    return repr(lazy ? Value::list(collect(result, host.meter())) : result, host.meter());
  } catch (const Failure& failure) {
    return failure.message;
  }
}

TEST(TemplateCalls, BindAsByHand) {
  const Value number(2.75);
  EXPECT_EQ(filtered(number, "round", {{Value(1)}, {{"method", Value("floor")}}}), "2.7");
  EXPECT_EQ(filtered(number, "round", {{Value(1)}, {{"precision", Value(2)}}}),
            "round got two values for 'precision'");
  EXPECT_EQ(filtered(number, "round", {{Value(1), Value("floor"), Value(3)}, {}}),
            "round got too many arguments");
  EXPECT_EQ(filtered(number, "round", {{}, {{"digits", Value(1)}}}),
            "round does not take the argument 'digits' by name");
  EXPECT_EQ(filtered(number, "replace", {{Value("a")}, {}}), "replace needs the argument 'new'");
}

// Filters do what the text and Jinja's documentation say.
TEST(TemplateFilters, DoWhatTheTextSays) {
  std::vector<Value> numbers;
  for (int i = 0; i < 7; ++i) numbers.emplace_back(i);
  const Value seven = Value::list(numbers);
  EXPECT_EQ(filtered(seven, "batch", {{Value(3)}, {}}), "[[0, 1, 2], [3, 4, 5], [6]]");
  EXPECT_EQ(filtered(seven, "slice", {{Value(3)}, {}}), "[[0, 1, 2], [3, 4], [5, 6]]");
  const Value text("foo bar baz qux");
  EXPECT_EQ(filtered(text, "truncate", {{Value(9)}, {}}), "'foo...'");
  EXPECT_EQ(filtered(text, "truncate", {{Value(9), Value(true)}, {}}), "'foo ba...'");
  EXPECT_EQ(filtered(text, "truncate", {{Value(11)}, {}}), "'foo bar baz qux'");
  EXPECT_EQ(filtered(text, "truncate", {{Value(11), Value(false), Value("..."), Value(0)}, {}}),
            "'foo bar...'");
  EXPECT_EQ(filtered(Value("it's a-b"), "title", {}), "\"It's A-B\"");
  EXPECT_EQ(filtered(Value::list({}), "map", {{Value("nosuch")}, {}}), "[]");
  EXPECT_EQ(filtered(seven, "map", {{Value("nosuch")}, {}}), "there is no filter named 'nosuch'");
}

// Values print as Python prints them.
TEST(TemplateValues, PrintAsPythonPrintsThem) {
  Meter meter{Limits{}};
  Dict dict;
  dict.set(Value("n"), Value(1));
  dict.set(Value("x"), Value());
  EXPECT_EQ(repr(Value::dict(dict), meter), "{'n': 1, 'x': None}");
  EXPECT_EQ(to_json(Value::dict(dict), false, std::nullopt, ", ", ": ", false, meter),
            R"({"n": 1, "x": null})");
  const Value half = arithmetic("/", Value(7), Value(2), meter);
  EXPECT_EQ(str(arithmetic("*", half, Value(2), meter), meter), "7.0");
  EXPECT_EQ(str(arithmetic("//", Value(-7), Value(2), meter), meter), "-4");
  EXPECT_EQ(str(arithmetic("%", Value(-7), Value(2), meter), meter), "1");
  EXPECT_EQ(slice(Value("naïve"), Value(), Value(), Value(-1), meter).text(), "evïan");
  EXPECT_TRUE(equal(Value(1), Value(true), meter));
  EXPECT_EQ(repr(Value("it's"), meter), "\"it's\"");
  EXPECT_EQ(repr(Value("a\u200b"), meter), "'a\\u200b'");
  EXPECT_EQ(to_json(Value("🌹"), true, std::nullopt, ", ", ": ", false, meter),
            R"("\ud83c\udf39")");
  EXPECT_EQ(replace_all("ab", "", "-", -1, meter), "-a-b-");
  EXPECT_EQ(
      percent_format("%05d|%x|%.0f", Value::tuple({Value(-42), Value(255), Value(0.5)}), meter),
      "-0042|ff|0");
  EXPECT_EQ(brace_format("{:>+8.2f}|{:,}", {{Value(3.14159), Value(1234567)}, {}}, meter),
            "   +3.14|1,234,567");
}

TEST(TemplateValues, AMissingKeyPrintsAsNothingAndFailsWhenUsed) {
  Meter meter{Limits{}};
  const Value missing = attribute(Value::dict({}), "x");
  EXPECT_EQ(str(missing, meter), "");
  EXPECT_EQ(length(missing), 0);
  EXPECT_THROW(attribute(missing, "y"), Failure);
  EXPECT_THROW(add(missing, Value(""), meter), Failure);
}

// Floats print by their shortest name.
TEST(TemplateValues, FloatsPrintByTheirShortestName) {
  EXPECT_EQ(real_repr(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(real_repr(1e17), "1e+17");
  EXPECT_EQ(real_repr(1e16), "1e+16");
  EXPECT_EQ(real_repr(1e15), "1000000000000000.0");
  EXPECT_EQ(real_repr(0.0001), "0.0001");
  EXPECT_EQ(real_repr(0.00001), "1e-05");
  EXPECT_EQ(real_repr(-0.0), "-0.0");
  std::mt19937_64 bits(1);
  for (int i = 0; i < 10'000; ++i) {  // whatever the float, its name reads back
    const double value = std::bit_cast<double>(bits());
    if (!std::isfinite(value)) continue;
    const std::string name = real_repr(value);
    ASSERT_EQ(std::strtod(name.c_str(), nullptr), value) << name;
  }
}

// A value that would explode is refused.
TEST(TemplateValues, ExplosionsAreRefused) {
  Limits limits;
  limits.output_bytes = 1 << 16;
  Meter meter{limits};
  Value doubled(1);
  for (int i = 0; i < 100; ++i) doubled = Value::list({doubled, doubled});
  EXPECT_THROW(repr(doubled, meter), Failure);  // 2^100 characters
  EXPECT_THROW(arithmetic("*", Value("ab"), Value(1'000'000'000), meter), Failure);
  Value nested(1);
  EXPECT_THROW(for (int i = 0; i < 1000; ++i) nested = Value::list({nested}), Failure);
}

}  // namespace
}  // namespace rose::text::jinja
