// Write numbers between bounds.

#include "rose/infer/json_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace rose::infer {

// Spell a bound as digits.
Decimal decimal_of(const core::json::value& number) {
  std::string text = number.is_int64()    ? fmt::format("{}", number.get_int64())
                     : number.is_uint64() ? fmt::format("{}", number.get_uint64())
                                          : fmt::format("{}", number.get_double());
  Decimal d;
  d.negative = text.starts_with('-');
  if (d.negative) text.erase(0, 1);
  int shift = 0;
  if (const std::size_t e = text.find('e'); e != std::string::npos) {
    shift = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  d.whole = text.substr(0, point);
  d.fraction = point < text.size() ? text.substr(point + 1) : "";
  for (; shift > 0; --shift) {  // move digits over the point
    d.whole += d.fraction.empty() ? '0' : d.fraction.front();
    if (!d.fraction.empty()) d.fraction.erase(0, 1);
  }
  for (; shift < 0; ++shift) {
    d.fraction.insert(0, 1, d.whole.back());
    d.whole.pop_back();
    if (d.whole.empty()) d.whole = "0";
  }
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size() - 1));
  d.fraction.resize(d.fraction.find_last_not_of('0') + 1);
  if (d.whole == "0" && d.fraction.empty()) d.negative = false;
  return d;
}

namespace {

constexpr int most_digits = 15;

// Write digits while touching the bounds.
class DigitMachine {
 public:
  /// Numbers at least 0, without a sign; `fraction` digits at most after the point.
  DigitMachine(NumberRange::Bound low, std::optional<NumberRange::Bound> high, int fraction,
               int multiple)
      : low_(std::move(low)), high_(std::move(high)), fraction_(fraction), multiple_(multiple) {
    machine_.states.emplace_back();
    const int longest =
        high_ ? size(high_->value.whole) : std::max(most_digits, size(low_.value.whole));
    for (int digits = size(low_.value.whole); digits <= longest; ++digits) {
      const bool touches_high = high_ && size(high_->value.whole) == digits;
      add_digits(0, {digits, 0, false, size(low_.value.whole) == digits, touches_high, 0});
    }
    for (std::size_t i = 0; i < todo_.size(); ++i) expand(todo_[i]);
  }
  Machine take() { return std::move(machine_); }

 private:
  struct Place {  // of `digits` before the point, `at` digits are written
    int digits, at;
    bool point, low, high;  // after the point; still the bound's digits
    int remainder;
    auto operator<=>(const Place&) const = default;
  };
  static int size(const std::string& s) { return static_cast<int>(s.size()); }
  static int digit(const Decimal& d, int at) {
    const auto i = static_cast<std::size_t>(at);
    const std::size_t w = d.whole.size();
    return i < w ? d.whole[i] - '0' : i - w < d.fraction.size() ? d.fraction[i - w] - '0' : 0;
  }
  static bool only_zeros(const Decimal& d, int from) {
    bool zeros = true;
    for (int i = from; i < size(d.whole) + size(d.fraction); ++i) zeros = zeros && digit(d, i) == 0;
    return zeros;
  }
  std::int32_t state_of(const Place& p) {
    const auto [at, added] =
        known_.try_emplace(p, static_cast<std::int32_t>(machine_.states.size()));
    if (added) machine_.states.emplace_back(), todo_.push_back(p);
    return at->second;
  }
  void add_digits(std::int32_t from, const Place& p);
  void expand(Place p);

  NumberRange::Bound low_;
  std::optional<NumberRange::Bound> high_;
  int fraction_, multiple_;
  Machine machine_;
  std::map<Place, std::int32_t> known_;
  std::vector<Place> todo_;
};

void DigitMachine::add_digits(std::int32_t from, const Place& p) {
  constexpr int nine = 9, base = 10;
  const int least = std::max(p.low ? digit(low_.value, p.at) : 0,
                             p.at == 0 && p.digits > 1 ? 1 : 0);  // no leading zero
  const int most = p.high ? digit(high_->value, p.at) : nine;
  for (int d = least; d <= most; ++d) {
    Place next = p;
    ++next.at;
    next.low = p.low && d == digit(low_.value, p.at);
    next.high = p.high && d == digit(high_->value, p.at);
    next.remainder = (p.remainder * base + d) % multiple_;
    const auto byte = static_cast<unsigned char>('0' + d);
    const std::int32_t to = state_of(next);
    machine_.states[static_cast<std::size_t>(from)].moves.emplace_back(byte_range(byte, byte), to);
  }
}

void DigitMachine::expand(Place p) {
  const std::int32_t self = known_.at(p);
  const bool whole = p.at == p.digits;
  if (p.point ? p.at < p.digits + fraction_ : !whole) add_digits(self, p);
  if (whole && !p.point && fraction_ > 0) {
    Place next = p;
    next.point = true;
    const std::int32_t to = state_of(next);
    machine_.states[static_cast<std::size_t>(self)].moves.emplace_back(byte_range('.', '.'), to);
  }
  const bool can_stop = p.point ? p.at > p.digits : whole;
  const bool above = !p.low || (only_zeros(low_.value, p.at) && !low_.excluded);
  const bool below = !p.high || !only_zeros(high_->value, p.at) || !high_->excluded;
  machine_.states[static_cast<std::size_t>(self)].accepts =
      can_stop && above && below && p.remainder == 0;
}

}  // namespace

// Write both signs.
Language::Expression json_number(Language& l, const NumberRange& range) {
  const auto digits = [&](std::int32_t least, std::int32_t most) {
    return l.repeat(l.bytes(byte_range('0', '9')), least, most);
  };
  if (!range.least && !range.most && range.multiple == 1) {
    const auto whole = l.choice(
        {l.literal("0"), l.sequence({l.bytes(byte_range('1', '9')), digits(0, most_digits - 1)})});
    std::vector<Language::Expression> parts{l.optional(l.literal("-")), whole};
    if (!range.integer) {
      const auto sign = l.optional(l.choice({l.literal("+"), l.literal("-")}));
      parts.push_back(l.optional(l.sequence({l.literal("."), digits(1, most_digits)})));
      parts.push_back(
          l.optional(l.sequence({l.choice({l.literal("e"), l.literal("E")}), sign, digits(1, 2)})));
    }
    return l.sequence(std::move(parts));
  }
  int fraction = 0;
  if (!range.integer && range.multiple == 1) {
    std::size_t whole = 1;
    for (const auto& bound : {range.least, range.most}) {
      if (!bound) continue;
      whole = std::max(whole, bound->value.whole.size());
      fraction = std::max(fraction, static_cast<int>(bound->value.fraction.size()));
    }
    fraction = std::max(fraction, most_digits - static_cast<int>(whole) - 1);
  }
  std::vector<Language::Expression> parts;
  if (!range.most || !range.most->value.negative) {
    NumberRange::Bound low;
    if (range.least && !range.least->value.negative) low = *range.least;
    parts.push_back(l.machine(DigitMachine(low, range.most, fraction, range.multiple).take()));
  }
  if (!range.least || range.least->value.negative) {
    NumberRange::Bound low{.excluded = true};  // -0 is 0
    if (range.most && range.most->value.negative) low = *range.most;
    const auto negative = DigitMachine(low, range.least, fraction, range.multiple).take();
    parts.push_back(l.sequence({l.literal("-"), l.machine(negative)}));
  }
  return l.choice(std::move(parts));
}

}  // namespace rose::infer
