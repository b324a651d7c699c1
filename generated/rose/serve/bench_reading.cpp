// Turn bytes and moments into tokens and latencies.

#include "rose/serve/bench_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "rose/core/error.h"

namespace rose::serve {

namespace {

// Cut a stream into events with their moments.
struct StreamEvent {
  double at = 0.0;
  std::string data;
};

double moment_of(const std::vector<Piece>& pieces, std::size_t end) {
  const auto piece = std::ranges::lower_bound(pieces, end, {}, &Piece::end);
  return piece == pieces.end() ? 0.0 : piece->at;
}

std::vector<StreamEvent> events_of(const Observation& o) {
  std::vector<StreamEvent> out;
  std::string data;
  for (std::size_t at = 0; at < o.body.size();) {
    const std::size_t end = o.body.find('\n', at);
    if (end == std::string::npos) break;  // the event never ended
    std::string_view line = std::string_view(o.body).substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    constexpr std::string_view mark = "data:";
    if (line.empty() && !data.empty()) {
      out.push_back({moment_of(o.pieces, at), std::move(data)});
      data.clear();
    } else if (line.starts_with(mark)) {
      line.remove_prefix(mark.size());
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (!data.empty()) data += '\n';
      data += line;
    }
  }
  return out;
}

// Count the tokens of an event, in every dialect.
const json::value* at(const json::value& value, std::initializer_list<std::string_view> path) {
  const json::value* here = &value;
  for (const std::string_view key : path) {
    const json::object* object = here->if_object();
    here = object == nullptr ? nullptr : object->if_contains(key);
    if (here == nullptr || here->is_null()) return nullptr;
  }
  return here;
}

std::optional<std::int64_t> number(const json::value& value,
                                   std::initializer_list<std::string_view> path) {
  const json::value* found = at(value, path);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  return found->to_number<std::int64_t>();
}

/// Tokens sent so far, if the event says.
std::optional<std::int64_t> total(const json::value& event) {
  if (const auto n = number(event, {"usage", "completion_tokens"})) return n;
  return number(event, {"timings", "predicted_n"});
}

/// Tokens in this event, if it lists them.
std::optional<std::int64_t> listed(const json::value& choice) {
  for (const auto path : {std::initializer_list<std::string_view>{"token_ids"},
                          {"logprobs", "tokens"},
                          {"logprobs", "content"}})
    if (const json::value* list = at(choice, path); list != nullptr && list->is_array())
      return static_cast<std::int64_t>(list->as_array().size());
  return std::nullopt;
}

std::string text_of(const json::value& choice) {
  std::string out;
  for (const auto path : {std::initializer_list<std::string_view>{"text"},
                          {"delta", "reasoning_content"},
                          {"delta", "content"}})
    if (const json::value* text = at(choice, path); text != nullptr && text->is_string())
      out += std::string_view(text->as_string());
  return out;
}

}  // namespace

// Read one answer.
Measured read_answer(const Observation& o) {
  Measured m{.error = o.error, .due = o.due, .sent = o.sent, .end = o.end, .wanted = o.wanted};
  if (!m.error.empty()) return m;
  if (o.status != 200) return m.error = fmt::format("status {}", o.status), m;
  bool done = false, finished = false, all_known = true, usage = false;
  std::int64_t seen = 0;
  for (const StreamEvent& e : events_of(o)) {
    if (e.data == "[DONE]") {
      done = true;
      continue;
    }
    boost::system::error_code wrong;
    const json::value event = json::parse(e.data, wrong);
    if (wrong) return m.error = "an event that is no JSON", m;
    if (at(event, {"error"}) != nullptr) return m.error = "an error in the stream", m;
    const auto so_far = total(event);
    if (at(event, {"usage"}) != nullptr) {
      usage = true;
      m.prompt = number(event, {"usage", "prompt_tokens"}).value_or(m.prompt);
      m.cached = number(event, {"usage", "prompt_tokens_details", "cached_tokens"}).value_or(0);
      m.completion = number(event, {"usage", "completion_tokens"}).value_or(m.completion);
    }
    const json::value* choices = at(event, {"choices"});
    if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) continue;
    const json::value& choice = choices->as_array().front();
    finished |= at(choice, {"finish_reason"}) != nullptr;
    const std::string text = text_of(choice);
    m.text += text;
    std::optional<std::int64_t> now = listed(choice);
    if (so_far) now = *so_far - seen;
    if (!now && text.empty()) continue;
    all_known &= now.has_value();
    const std::int64_t n = now.value_or(1);
    seen += n;
    if (n > 0) m.arrivals.push_back({e.at, n});
  }
  if (!done && !finished) return m.error = "the stream ended too early", m;
  if (m.arrivals.empty()) return m.error = "an answer without tokens", m;
  if (!usage) m.completion = seen;
  m.exact = (all_known || usage) && seen == m.completion;
  return m;
}

double Measured::tpot() const {
  const std::int64_t after = completion - arrivals.front().tokens;
  return after > 0 ? (arrivals.back().at - arrivals.front().at) / static_cast<double>(after) : 0.0;
}

std::vector<double> Measured::gaps() const {
  std::vector<double> out;
  for (std::size_t j = 1; j < arrivals.size(); ++j)
    out.push_back(arrivals[j].at - arrivals[j - 1].at);
  return out;
}

std::vector<double> Measured::token_waits() const {
  std::vector<double> out;
  for (std::size_t j = 1; j < arrivals.size(); ++j)
    out.insert(out.end(), static_cast<std::size_t>(arrivals[j].tokens),
               (arrivals[j].at - arrivals[j - 1].at) / static_cast<double>(arrivals[j].tokens));
  return out;
}

}  // namespace rose::serve
