// Decide what is asked, and when.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/json.h"
#include "rose/core/rng.h"

namespace rose::serve {

namespace json = core::json;

/// A law for a number of tokens: "512", "100:1024" (uniform, ends included), "lognormal:400:0.8:8192" (median, sigma, most).
class LengthLaw {
 public:
  LengthLaw(std::int64_t fixed = 1) : low_(fixed), high_(fixed) {}  // NOLINT: a number is a law
  static LengthLaw parse(std::string_view text);  ///< throws core::Error (invalid_argument)
  std::int64_t draw(core::Rng& rng) const;        ///< at least 1
  std::string text() const;

 private:
  std::int64_t low_ = 1, high_ = 1;
  double median_ = 0.0, sigma_ = 0.0;  ///< sigma 0: uniform
};

enum class Arrivals : std::uint8_t { closed, all, constant, poisson, trace };

struct Workload {
  Arrivals arrivals = Arrivals::closed;
  int concurrency = 1;  ///< users of a closed load; of an open one, 0 is no limit
  double rate = 1.0;    ///< conversations per second
  int requests = 100;   ///< conversations
  LengthLaw prompt{512}, answer{128}, turns{1};
  double think_seconds = 0.0;  ///< mean of an exponential wait between turns
  int prefix_groups = 0;       ///< conversations share a beginning with others of their group
  int prefix_tokens = 0;       ///< of it; the prompt's own tokens come after
  std::uint64_t seed = 0;
  std::uint64_t salt = 0;  ///< another one: the same lengths and moments, other words
  int vocab = 10'000;      ///< ids are drawn below it
  std::string trace{};     ///< JSON lines: timestamp (ms), input_length, output_length, hash_ids
  int trace_block = 512;   ///< tokens that one of the hash_ids stands for
  double trace_speed = 1.0;
};

struct PlannedTurn {
  std::vector<std::int32_t> tokens;  ///< that the user adds; of the first turn, all of the prompt
  std::int64_t answer = 1;           ///< tokens wanted
  double think = 0.0;                ///< seconds since the answer before
};
struct PlannedTalk {
  double due = -1.0;  ///< seconds since the start; negative: when a user is free
  std::vector<PlannedTurn> turns{};
};
/// In order of their moments. The same workload gives the same plan.
std::vector<PlannedTalk> plan_load(const Workload& workload);

const char* name(Arrivals arrivals);
Arrivals parse_arrivals(std::string_view text);
json::object describe(const Workload& workload);

/// Words for ids, for servers that take no ids: about one token each.
std::string words_of(const std::vector<std::int32_t>& tokens);

}  // namespace rose::serve
