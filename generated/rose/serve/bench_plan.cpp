// Decide what is asked, and when.

#include "rose/serve/bench_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::serve {

// Draw a length.
namespace {

std::vector<double> numbers(std::string_view text, std::string_view whole) {
  std::vector<double> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(':', at), text.size());
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, value);
    if (error != std::errc() || stop != text.data() + end || !(value > 0))
      throw core::Error(core::Code::invalid_argument, "this is no law for a length")
          .in(std::string(whole))
          .hint("write 512, 100:1024 or lognormal:MEDIAN:SIGMA:MOST");
    out.push_back(value);
    at = end + 1;
  }
  return out;
}

}  // namespace

LengthLaw LengthLaw::parse(std::string_view text) {
  constexpr std::string_view lognormal = "lognormal:";
  const bool normal = text.starts_with(lognormal);
  const auto n = numbers(normal ? text.substr(lognormal.size()) : text, text);
  LengthLaw law;
  law.low_ = normal ? 1 : static_cast<std::int64_t>(n.front());
  law.high_ = static_cast<std::int64_t>(n.back());
  if (normal && n.size() == 3) {
    law.median_ = n[0], law.sigma_ = n[1];
  } else if (normal || n.size() > 2 || law.high_ < law.low_) {
    numbers("", text);  // throws
  }
  return law;
}

std::int64_t LengthLaw::draw(core::Rng& rng) const {
  if (sigma_ > 0) {
    const double x = median_ * std::exp(sigma_ * static_cast<double>(rng.normal()));
    return std::clamp(static_cast<std::int64_t>(std::llround(x)), low_, high_);
  }
  return low_ +
         static_cast<std::int64_t>(rng.below64(static_cast<std::uint64_t>(high_ - low_) + 1));
}

std::string LengthLaw::text() const {
  if (sigma_ > 0) return fmt::format("lognormal:{}:{}:{}", median_, sigma_, high_);
  return low_ == high_ ? fmt::format("{}", low_) : fmt::format("{}:{}", low_, high_);
}

// Name the ways of arriving.
namespace {

constexpr std::array arrival_names = {"closed", "all", "constant", "poisson", "trace"};

double exponential(core::Rng& rng, double mean) {
  return -std::log1p(-rng.uniform64()) * mean;
}

}  // namespace

const char* name(Arrivals arrivals) {
  return arrival_names.at(static_cast<std::size_t>(arrivals));
}

Arrivals parse_arrivals(std::string_view text) {
  for (std::size_t i = 0; i < arrival_names.size(); ++i)
    if (text == arrival_names[i]) return static_cast<Arrivals>(i);
  throw core::Error(core::Code::invalid_argument, "there is no such way of arriving")
      .in(std::string(text))
      .hint("closed, all, constant, poisson or trace");
}

// Draw a conversation.
namespace {

enum Stream : std::uint64_t {
  of_moments = 0,
  of_prefixes = 1,
  of_talks = std::uint64_t{1} << 32,
  of_words = std::uint64_t{1} << 33
};

core::Rng words_rng(const Workload& w, std::uint64_t stream) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
  return core::Rng(w.seed ^ (w.salt * golden), stream);
}

std::vector<std::int32_t> draw_tokens(core::Rng& rng, std::int64_t count, int vocab) {
  constexpr int first = 300;  // below are bytes and, in many vocabularies, special tokens
  const int low = vocab > 2 * first ? first : 0;
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  for (auto& id : out)
    id = low + static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(vocab - low)));
  return out;
}

PlannedTalk draw_talk(const Workload& w, std::uint64_t number) {
  core::Rng rng(w.seed, of_talks + number), words = words_rng(w, of_words + number);
  PlannedTalk talk;
  const std::int64_t turns = w.turns.draw(rng);
  for (std::int64_t t = 0; t < turns; ++t) {
    PlannedTurn turn;
    if (t == 0 && w.prefix_groups > 0 && w.prefix_tokens > 0) {
      core::Rng shared =
          words_rng(w, of_prefixes + rng.below(static_cast<std::uint32_t>(w.prefix_groups)));
      turn.tokens = draw_tokens(shared, w.prefix_tokens, w.vocab);
    }
    const auto own = draw_tokens(words, w.prompt.draw(rng), w.vocab);
    turn.tokens.insert(turn.tokens.end(), own.begin(), own.end());
    turn.answer = w.answer.draw(rng);
    if (t > 0 && w.think_seconds > 0) turn.think = exponential(rng, w.think_seconds);
    talk.turns.push_back(std::move(turn));
  }
  return talk;
}

}  // namespace

// Read a recorded load.
namespace {

std::vector<PlannedTalk> read_trace(const Workload& w) {
  const std::string text = core::read_file(w.trace);
  std::vector<PlannedTalk> out;
  for (std::size_t at = 0, line = 1; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view one = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (one.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", w.trace, line);
    const json::value parsed = core::parse_json(one, where);
    const json::object& row = core::as_object(parsed, where);
    PlannedTalk talk{
        .due = core::get_double(row, "timestamp", where) / 1000.0 / w.trace_speed,
        .turns = {{.tokens = {}, .answer = core::get_int(row, "output_length", where)}}};
    const std::int64_t length = core::get_int(row, "input_length", where);
    if (length < 1 || talk.turns[0].answer < 1 || !(talk.due >= 0))
      throw core::Error(core::Code::corrupt, "lengths and moments must be positive").in(where);
    auto& tokens = talk.turns[0].tokens;
    if (core::find(row, "hash_ids") != nullptr)
      for (const json::value& id : core::get_array(row, "hash_ids", where)) {
        core::Rng block =
            words_rng(w, of_prefixes + static_cast<std::uint64_t>(id.to_number<std::int64_t>()));
        const auto more = draw_tokens(block, w.trace_block, w.vocab);
        tokens.insert(tokens.end(), more.begin(), more.end());
      }
    core::Rng own = words_rng(w, of_words + line);
    const auto have = static_cast<std::int64_t>(tokens.size());
    if (have < length) {
      const auto more = draw_tokens(own, length - have, w.vocab);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    tokens.resize(static_cast<std::size_t>(length));
    out.push_back(std::move(talk));
    if (out.size() == static_cast<std::size_t>(w.requests)) break;
  }
  std::ranges::stable_sort(out, {}, &PlannedTalk::due);
  return out;
}

}  // namespace

// Plan the whole load.
std::vector<PlannedTalk> plan_load(const Workload& w) {
  if (w.arrivals == Arrivals::trace) return read_trace(w);
  if ((w.arrivals == Arrivals::constant || w.arrivals == Arrivals::poisson) && !(w.rate > 0))
    throw core::Error(core::Code::invalid_argument, "an open load needs a rate above 0").in("rate");
  if (w.arrivals == Arrivals::closed && w.concurrency < 1)
    throw core::Error(core::Code::invalid_argument, "a closed load needs at least one user")
        .in("concurrency");
  core::Rng moments(w.seed, of_moments);
  double now = 0.0;
  std::vector<PlannedTalk> out;
  for (int i = 0; i < w.requests; ++i) {
    PlannedTalk talk = draw_talk(w, static_cast<std::uint64_t>(i));
    if (w.arrivals != Arrivals::closed) talk.due = now;
    if (w.arrivals == Arrivals::constant) now += 1.0 / w.rate;
    if (w.arrivals == Arrivals::poisson) now += exponential(moments, 1.0 / w.rate);
    out.push_back(std::move(talk));
  }
  return out;
}

// Say what the load was.
json::object describe(const Workload& w) {
  json::object out{{"arrivals", name(w.arrivals)},     {"requests", w.requests},
                   {"concurrency", w.concurrency},     {"prompt_tokens", w.prompt.text()},
                   {"answer_tokens", w.answer.text()}, {"turns", w.turns.text()},
                   {"think_seconds", w.think_seconds}, {"prefix_groups", w.prefix_groups},
                   {"prefix_tokens", w.prefix_tokens}, {"vocab", w.vocab}};
  if (w.arrivals == Arrivals::constant || w.arrivals == Arrivals::poisson) out["rate"] = w.rate;
  if (w.arrivals == Arrivals::trace) {
    out["trace"] = w.trace, out["trace_speed"] = w.trace_speed;
    out["trace_block"] = w.trace_block;
  }
  return out;
}

std::string words_of(const std::vector<std::int32_t>& tokens) {
  constexpr std::array words = {
      "time",  "year",  "people", "way",   "day",   "man",   "thing", "woman", "life",  "child",
      "world", "hand",  "part",   "place", "case",  "week",  "work",  "fact",  "group", "point",
      "home",  "water", "room",   "side",  "night", "story", "eye",   "word",  "head",  "house",
      "book",  "line",  "law",    "car",   "city",  "name",  "team",  "idea",  "body",  "back",
      "face",  "level", "door",   "art",   "war",   "end",   "road",  "form",  "air",   "heart",
      "light", "voice", "king",   "money", "river", "sea",   "tree",  "field", "rock",  "fire",
      "wind",  "snow",  "rain",   "stone"};
  std::string out;
  for (const std::int32_t id : tokens) {
    if (!out.empty()) out += ' ';
    out += words[static_cast<std::size_t>(id) % words.size()];
  }
  return out;
}

}  // namespace rose::serve
