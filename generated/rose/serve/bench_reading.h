// Turn bytes and moments into tokens and latencies.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rose/serve/bench_client.h"

namespace rose::serve {

/// Tokens that arrived together.
struct Arrival {
  double at = 0.0;
  std::int64_t tokens = 0;
};

/// One request, as its client saw it. Moments are seconds since the start of the load.
struct Measured {
  std::string error{};  ///< empty: it was answered whole
  double due = 0.0, sent = 0.0, end = 0.0;
  std::int64_t prompt = 0, cached = 0, completion = 0;  ///< the server's usage
  std::int64_t wanted = 0;
  std::vector<Arrival> arrivals{};
  bool exact = false;  ///< the tokens of each arrival are the server's word, not one for each piece
  std::string text{};  ///< the answer; not kept in results

  double ttft() const { return arrivals.front().at - due; }
  double e2e() const { return end - due; }
  double tpot() const;                      ///< 0 when all tokens came at once
  std::vector<double> gaps() const;         ///< one for each arrival after the first
  std::vector<double> token_waits() const;  ///< ITL: one for each token after the first arrival
};

Measured read_answer(const Observation& observation);

}  // namespace rose::serve
