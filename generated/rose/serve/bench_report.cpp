// Sum up, keep, merge and print results.

#include "rose/serve/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::serve {

// Describe a sample.
double percentile(const std::vector<double>& ascending, double share) {
  if (ascending.empty()) return 0.0;
  const double rank = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const auto above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] +
         (rank - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(values, 0.5),
          .p90 = percentile(values, 0.9),
          .p99 = percentile(values, 0.99),
          .max = values.back()};
}

// Say which requests are good.
Objective Objective::parse(std::string_view text) {
  Objective out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view one = text.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = std::min(one.find(':'), one.size());
    const std::string_view key = one.substr(0, colon);
    double* to = key == "ttft"   ? &out.ttft
                 : key == "tpot" ? &out.tpot
                 : key == "e2e"  ? &out.e2e
                                 : nullptr;
    double ms = 0;
    const std::string_view value = one.substr(std::min(colon + 1, one.size()));
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), ms);
    if (to == nullptr || error != std::errc() || stop != value.data() + value.size() || !(ms > 0))
      throw core::Error(core::Code::invalid_argument, "this is no objective")
          .in(std::string(text))
          .hint("write limits in milliseconds: ttft:500,tpot:50,e2e:10000");
    *to = ms / 1000.0;
  }
  return out;
}

bool Objective::met(const Measured& m) const {
  return m.error.empty() && (ttft == 0 || m.ttft() <= ttft) && (tpot == 0 || m.tpot() <= tpot) &&
         (e2e == 0 || m.e2e() <= e2e);
}

// Sum up.
double BenchResult::rate() const {
  return core::get_double_or(workload, open() && workload.contains("rate") ? "rate" : "concurrency",
                             0.0, "workload");
}

bool BenchResult::open() const {
  return core::get_string_or(workload, "arrivals", "closed", "workload") != "closed";
}

BenchSummary summarize(const BenchResult& result, const Objective& objective) {
  BenchSummary s{.asked = result.requests.size(), .seconds = result.seconds, .exact = true};
  std::vector<double> ttft, tpot, itl, gap, e2e;
  std::map<std::string, std::size_t> errors;
  double steady = 0;
  for (const Measured& m : result.requests) {
    s.latest = std::max(s.latest, m.sent - m.due);
    if (!m.error.empty()) {
      ++errors[m.error];
      continue;
    }
    ++s.answered;
    s.good += objective.met(m) ? 1 : 0;
    s.early += m.completion < m.wanted ? 1 : 0;
    s.prompt += m.prompt, s.cached += m.cached, s.completion += m.completion;
    s.exact &= m.exact;
    ttft.push_back(m.ttft()), e2e.push_back(m.e2e());
    if (m.completion > m.arrivals.front().tokens) tpot.push_back(m.tpot());
    const auto gaps = m.gaps(), waits = m.token_waits();
    gap.insert(gap.end(), gaps.begin(), gaps.end());
    itl.insert(itl.end(), waits.begin(), waits.end());
    for (const Arrival& a : m.arrivals)
      if (a.at >= 0.1 * s.seconds && a.at < 0.9 * s.seconds)
        steady += static_cast<double>(a.tokens);
  }
  s.errors.assign(errors.begin(), errors.end());
  s.steady = s.seconds > 0 ? steady / (0.8 * s.seconds) : 0.0;
  s.busy = s.seconds > 0 ? result.cpu_seconds / s.seconds : 0.0;
  s.ttft = spread_of(std::move(ttft)), s.tpot = spread_of(std::move(tpot));
  if (s.exact) s.itl = spread_of(std::move(itl));
  s.gap = spread_of(std::move(gap)), s.e2e = spread_of(std::move(e2e));
  return s;
}

// Keep results.
namespace {

json::object spread_json(const Spread& s) {
  constexpr double ms = 1000.0;
  return {{"count", s.count},  {"mean", s.mean * ms}, {"p50", s.p50 * ms},
          {"p90", s.p90 * ms}, {"p99", s.p99 * ms},   {"max", s.max * ms}};
}

std::int64_t micro(double seconds) {
  return std::llround(seconds * 1e6);
}

json::object request_json(const Measured& m) {
  json::array arrivals;
  double before = m.due;
  for (const Arrival& a : m.arrivals) {  // differences: shorter
    arrivals.push_back(json::array{micro(a.at) - micro(before), a.tokens});
    before = a.at;
  }
  json::object out{
      {"due_us", micro(m.due)}, {"sent_us", micro(m.sent)}, {"end_us", micro(m.end)},
      {"prompt", m.prompt},     {"cached", m.cached},       {"completion", m.completion},
      {"wanted", m.wanted},     {"exact", m.exact},         {"arrivals", arrivals}};
  if (!m.error.empty()) out["error"] = m.error;
  return out;
}

Measured request_from_json(const json::object& o, std::string_view where) {
  const auto moment = [&](std::string_view key) {
    return 1e-6 * static_cast<double>(core::get_int(o, key, where));
  };
  Measured m{.error = std::string(core::get_string_or(o, "error", "", where)),
             .due = moment("due_us"),
             .sent = moment("sent_us"),
             .end = moment("end_us"),
             .prompt = core::get_int(o, "prompt", where),
             .cached = core::get_int(o, "cached", where),
             .completion = core::get_int(o, "completion", where),
             .wanted = core::get_int(o, "wanted", where)};
  m.exact = core::get_bool(o, "exact", where);
  std::int64_t at = core::get_int(o, "due_us", where);
  for (const json::value& a : core::get_array(o, "arrivals", where)) {
    if (!a.is_array() || a.as_array().size() != 2 || !a.at(0).is_int64() || !a.at(1).is_int64())
      throw core::Error(core::Code::corrupt, "an arrival is [microseconds, tokens]")
          .in(std::string(where));
    at += a.at(0).as_int64();
    m.arrivals.push_back({1e-6 * static_cast<double>(at), a.at(1).as_int64()});
  }
  if (m.error.empty() && m.arrivals.empty())
    throw core::Error(core::Code::corrupt, "an answer without tokens").in(std::string(where));
  return m;
}

}  // namespace

json::object to_json(const BenchResult& r, const Objective& objective) {
  const BenchSummary s = summarize(r, objective);
  json::object errors;
  for (const auto& [what, times] : s.errors) errors[what] = times;
  json::object summary{
      {"seconds", s.seconds},
      {"asked", s.asked},
      {"answered", s.answered},
      {"errors", errors},
      {"ended_early", s.early},
      {"prompt_tokens", s.prompt},
      {"cached_tokens", s.cached},
      {"output_tokens", s.completion},
      {"requests_per_second", s.per_second(static_cast<double>(s.answered))},
      {"output_tokens_per_second", s.per_second(static_cast<double>(s.completion))},
      {"steady_tokens_per_second", s.steady},
      {"goodput_per_second", s.per_second(static_cast<double>(s.good))},
      {"client_busy", s.busy},
      {"client_latest_ms", s.latest * 1000.0},
      {"ttft_ms", spread_json(s.ttft)},
      {"tpot_ms", spread_json(s.tpot)},
      {"gap_ms", spread_json(s.gap)},
      {"e2e_ms", spread_json(s.e2e)}};
  summary["itl_ms"] = s.exact ? json::value(spread_json(s.itl)) : json::value(nullptr);
  json::array requests;
  for (const Measured& m : r.requests) requests.push_back(request_json(m));
  return {{"label", r.label},
          {"workload", r.workload},
          {"environment", r.environment},
          {"objective_ms",
           {{"ttft", objective.ttft * 1000.0},
            {"tpot", objective.tpot * 1000.0},
            {"e2e", objective.e2e * 1000.0}}},
          {"seeds", json::value_from(r.seeds)},
          {"seconds", r.seconds},
          {"cpu_seconds", r.cpu_seconds},
          {"summary", std::move(summary)},
          {"requests", std::move(requests)}};
}

BenchResult result_from_json(const json::object& o, std::string_view where) {
  BenchResult r{.label = std::string(core::get_string(o, "label", where)),
                .workload = core::get_object(o, "workload", where),
                .environment = core::get_object(o, "environment", where)};
  for (const json::value& seed : core::get_array(o, "seeds", where))
    r.seeds.push_back(seed.to_number<std::uint64_t>());
  r.seconds = core::get_double(o, "seconds", where);
  r.cpu_seconds = core::get_double(o, "cpu_seconds", where);
  for (const json::value& request : core::get_array(o, "requests", where))
    r.requests.push_back(request_from_json(core::as_object(request, where), where));
  return r;
}

std::string results_file(const std::vector<BenchResult>& results, const Objective& objective) {
  json::array all;
  for (const BenchResult& r : results) all.push_back(to_json(r, objective));
  return json::serialize(
             json::object{{"format", "rose-bench-serve-1"}, {"results", std::move(all)}}) +
         "\n";
}

std::vector<BenchResult> read_results(const std::string& file) {
  const json::value parsed = core::parse_json(core::read_file(file), file);
  const json::object& top = core::as_object(parsed, file);
  if (core::get_string_or(top, "format", "", file) != "rose-bench-serve-1")
    throw core::Error(core::Code::corrupt, "this is no result of rose bench serve").in(file);
  std::vector<BenchResult> out;
  for (const json::value& r : core::get_array(top, "results", file))
    out.push_back(result_from_json(core::as_object(r, file), file));
  return out;
}

// Merge results of one load.
std::vector<BenchResult> merge(std::vector<BenchResult> results) {
  std::vector<BenchResult> out;
  for (BenchResult& r : results) {
    const auto same = std::ranges::find_if(
        out, [&](const BenchResult& o) { return o.label == r.label && o.workload == r.workload; });
    if (same == out.end()) {
      out.push_back(std::move(r));
      continue;
    }
    for (const std::uint64_t seed : r.seeds)
      if (std::ranges::find(same->seeds, seed) != same->seeds.end())
        throw core::Error(
            core::Code::invalid_argument,
            fmt::format("seed {} of '{}' is there twice: the same requests again", seed, r.label))
            .in("merge");
    for (Measured& m : r.requests) {
      m.due += same->seconds, m.sent += same->seconds, m.end += same->seconds;
      for (Arrival& a : m.arrivals) a.at += same->seconds;
      same->requests.push_back(std::move(m));
    }
    same->seeds.insert(same->seeds.end(), r.seeds.begin(), r.seeds.end());
    same->seconds += r.seconds, same->cpu_seconds += r.cpu_seconds;
  }
  return out;
}

// Print tables.
namespace {

std::string row(std::string_view name, const Spread& s) {
  constexpr double ms = 1000.0;
  return fmt::format("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {} |\n", name,
                     s.mean * ms, s.p50 * ms, s.p90 * ms, s.p99 * ms, s.max * ms, s.count);
}

std::string load_in_words(const BenchResult& r) {
  const auto text = [&](const char* key) {
    return std::string(core::get_string_or(r.workload, key, "?", "workload"));
  };
  const std::string arrivals = text("arrivals");
  const std::string pace = arrivals == "closed"          ? fmt::format(", {} at once", r.rate())
                           : r.workload.contains("rate") ? fmt::format(", {} a second", r.rate())
                                                         : "";
  return fmt::format("{}{}; {} tokens in, {} out", arrivals, pace, text("prompt_tokens"),
                     text("answer_tokens"));
}

}  // namespace

std::string markdown(const BenchResult& r, const BenchSummary& s) {
  std::string out = fmt::format(
      "### {} ({})\n\n| ms | mean | p50 | p90 | p99 | max | samples |\n"
      "|---|---|---|---|---|---|---|\n",
      r.label, load_in_words(r));
  out += row("TTFT", s.ttft) + row("TPOT", s.tpot);
  out += s.exact ? row("ITL", s.itl)
                 : "| ITL | unknown: the server does not say how many tokens a piece has ||||||\n";
  out += row("gap", s.gap) + row("E2E", s.e2e);
  out += fmt::format(
      "\n{} of {} answered in {:.2f} s ({} ended early); {:.2f} requests/s, {:.2f} good; {:.1f} "
      "output "
      "tokens/s ({:.1f} steady), {} of {} prompt tokens cached.\n",
      s.answered, s.asked, s.seconds, s.early, s.per_second(static_cast<double>(s.answered)),
      s.per_second(static_cast<double>(s.good)), s.per_second(static_cast<double>(s.completion)),
      s.steady, s.cached, s.prompt);
  for (const auto& [what, times] : s.errors) out += fmt::format("Failed: {} × {}.\n", times, what);
  constexpr double full = 0.7;
  if (s.busy > full)
    out += fmt::format("The client used {:.0f} % of a processor: its numbers are doubtful.\n",
                       100 * s.busy);
  return out;
}

std::string markdown_overview(const std::vector<BenchResult>& results, const Objective& objective) {
  std::string out =
      "| server | load | failed | output tokens/s | good/s | TTFT p50 | p99 | TPOT p50 | p99 | ITL "
      "p99 |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n";
  constexpr double ms = 1000.0;
  for (const BenchResult& r : results) {
    const BenchSummary s = summarize(r, objective);
    out += fmt::format(
        "| {} | {} | {} | {:.1f} | {:.2f} | {:.1f} | {:.1f} | {:.2f} | {:.2f} | {} |\n", r.label,
        load_in_words(r), s.asked - s.answered, s.per_second(static_cast<double>(s.completion)),
        s.per_second(static_cast<double>(s.good)), s.ttft.p50 * ms, s.ttft.p99 * ms,
        s.tpot.p50 * ms, s.tpot.p99 * ms, s.exact ? fmt::format("{:.2f}", s.itl.p99 * ms) : "–");
  }
  return out;
}

}  // namespace rose::serve
