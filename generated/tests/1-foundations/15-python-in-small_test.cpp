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

namespace rose::text::jinja {
namespace {

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
