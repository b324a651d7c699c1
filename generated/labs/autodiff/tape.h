// Record a scalar program and differentiate it in reverse.

#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

namespace rose::labs {

class Tape;

/// A number that remembers how it was made. Without a tape it is a constant.
struct Var {
  Var() = default;
  Var(double constant)
      : value(constant) {}  // implicit: 2.0 * x should read as it does in a formula
  Var(Tape* owner, std::uint32_t entry, double v) : value(v), tape(owner), index(entry) {}

  double value = 0.0;
  Tape* tape = nullptr;
  std::uint32_t index = 0;
};

// Keep, per step, its parents and its local derivatives.
class Tape {
 public:
  /// A new independent variable.
  Var input(double value) { return record(value, {}, 0.0, {}, 0.0); }

  /// Appends a step with the given value and derivatives; parents without a tape are constants.
  Var record(double value, const Var& a, double da, const Var& b, double db) {
    const auto slot = [](const Var& v) { return v.tape == nullptr ? kNone : v.index; };
    entries_.push_back({{slot(a), slot(b)}, {da, db}});
    return {this, static_cast<std::uint32_t>(entries_.size() - 1), value};
  }

  /// Derivatives of `output` with respect to every entry, indexed by Var::index.
  std::vector<double> gradient(const Var& output) const {
    std::vector<double> adjoint(entries_.size(), 0.0);
    if (output.tape == nullptr) return adjoint;  // a constant depends on nothing
    adjoint[output.index] = 1.0;
    for (std::size_t i = output.index + 1; i-- > 0;) {
      for (std::size_t p = 0; p < 2; ++p) {
        const std::uint32_t parent = entries_[i].parent[p];
        if (parent != kNone) adjoint[parent] += adjoint[i] * entries_[i].partial[p];
      }
    }
    return adjoint;
  }

  std::size_t size() const { return entries_.size(); }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Entry {
    std::array<std::uint32_t, 2> parent;
    std::array<double, 2> partial;
  };
  std::vector<Entry> entries_;
};

// Record only what depends on an input.
inline Var apply(double value, const Var& a, double da, const Var& b = {}, double db = 0.0) {
  Tape* const tape = a.tape != nullptr ? a.tape : b.tape;
  return tape == nullptr ? Var(value) : tape->record(value, a, da, b, db);
}

// Differentiate the four operations.
inline Var operator+(const Var& a, const Var& b) {
  return apply(a.value + b.value, a, 1.0, b, 1.0);
}
inline Var operator-(const Var& a, const Var& b) {
  return apply(a.value - b.value, a, 1.0, b, -1.0);
}
inline Var operator-(const Var& a) {
  return apply(-a.value, a, -1.0);
}
inline Var operator*(const Var& a, const Var& b) {
  return apply(a.value * b.value, a, b.value, b, a.value);
}
inline Var operator/(const Var& a, const Var& b) {
  const double quotient = a.value / b.value;
  return apply(quotient, a, 1.0 / b.value, b, -quotient / b.value);
}
inline Var& operator+=(Var& a, const Var& b) {
  return a = a + b;
}
inline bool operator<(const Var& a, const Var& b) {
  return a.value < b.value;
}

// Differentiate the elementary functions.
inline Var exp(const Var& a) {
  const double y = std::exp(a.value);
  return apply(y, a, y);
}
inline Var log(const Var& a) {
  return apply(std::log(a.value), a, 1.0 / a.value);
}
inline Var sqrt(const Var& a) {
  const double y = std::sqrt(a.value);
  return apply(y, a, 0.5 / y);
}
inline Var tanh(const Var& a) {
  const double y = std::tanh(a.value);
  return apply(y, a, 1.0 - y * y);
}
inline Var erf(const Var& a) {
  const double slope = 2.0 * std::numbers::inv_sqrtpi * std::exp(-a.value * a.value);
  return apply(std::erf(a.value), a, slope);
}

}  // namespace rose::labs
