// What the two processes say.

#include "rose/serve/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace rose::serve {
namespace {

// One walk over the fields, in two directions.
struct Writing {
  static constexpr bool reading = false;
  WireWriter out;
  template <Plain T>
  void field(const char*, const T& value) {
    out.put(value);
  }
  void field(const char*, bool value) { out.put(value); }
  void field(const char*, const std::string& text) { out.put(std::string_view(text)); }
  template <Plain T>
  void field(const char*, const std::vector<T>& values) {
    out.put(std::span<const T>(values));
  }
  template <class E>
  void choice(const char*, const E& value, std::uint8_t) {
    out.put(static_cast<std::uint8_t>(value));
  }
  template <class T, class Each>
  void each(const char*, const std::vector<T>& values, std::size_t, Each&& visit) {
    out.put(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) visit(*this, value);
  }
};

struct Reading {
  static constexpr bool reading = true;
  WireReader in;
  template <Plain T>
  void field(const char* name, T& value) {
    value = in.get<T>(name);
  }
  void field(const char* name, bool& value) { value = in.flag(name); }
  void field(const char* name, std::string& text) { text = in.text(name); }
  template <Plain T>
  void field(const char* name, std::vector<T>& values) {
    values = in.list<T>(name);
  }
  template <class E>
  void choice(const char* name, E& value, std::uint8_t limit) {
    value = static_cast<E>(in.choice(limit, name));
  }
  template <class T, class Each>
  void each(const char* name, std::vector<T>& values, std::size_t least, Each&& visit) {
    values.resize(in.count(least, name));
    for (T& value : values) visit(*this, value);
  }
};

// The fields of each message.
template <class V, class S>
void walk_sampling(V& v, S& s) {
  v.field("temperature", s.temperature), v.field("top_p", s.top_p), v.field("min_p", s.min_p);
  v.field("top_k", s.top_k), v.field("repetition_penalty", s.repetition_penalty);
  v.field("presence_penalty", s.presence_penalty),
      v.field("frequency_penalty", s.frequency_penalty);
  v.each("logit_bias", s.logit_bias, sizeof(std::int32_t) + sizeof(float),
         [](auto& w, auto& bias) { w.field("token", bias.first), w.field("bias", bias.second); });
  bool seeded = s.seed.has_value();
  std::uint64_t seed = s.seed.value_or(0);
  v.field("seeded", seeded);
  if (seeded) v.field("seed", seed);
  if constexpr (V::reading) s.seed = seeded ? std::optional(seed) : std::nullopt;
  v.field("n", s.n), v.field("logprobs", s.logprobs),
      v.field("processed_logprobs", s.processed_logprobs);
  v.field("prompt_logprobs", s.prompt_logprobs), v.field("max_tokens", s.max_tokens);
  v.field("min_tokens", s.min_tokens);
  v.each("stop", s.stop, sizeof(std::uint32_t), [](auto& w, auto& text) { w.field("stop", text); });
  v.field("include_stop", s.include_stop), v.field("stop_token_ids", s.stop_token_ids);
  v.field("ignore_eos", s.ignore_eos);
}

template <class V, class Q>
void walk_question(V& v, Q& q) {
  constexpr std::uint8_t shapes = 5;
  v.field("prompt", q.prompt);
  walk_sampling(v, q.sampling);
  v.choice("shape", q.shape.kind, shapes), v.field("shape_text", q.shape.text);
  bool pooled = q.pooling.has_value();
  v.field("pooled", pooled);
  if (pooled) {
    constexpr std::uint8_t kinds = 2;
    infer::Pooling pooling = q.pooling.value_or(infer::Pooling{});
    v.choice("pooling", pooling.kind, kinds), v.field("normalize", pooling.normalize);
    if constexpr (V::reading) q.pooling = pooling;
  }
  v.field("priority", q.priority), v.field("salt", q.salt), v.field("adapter", q.adapter);
}

template <class V, class F>
void walk_facts(V& v, F& f) {
  v.field("runner", f.runner), v.field("vocab", f.vocab), v.field("positions", f.positions);
  v.field("pages", f.pages), v.field("sequences", f.sequences), v.field("page_size", f.page_size);
  v.field("weights_version", f.weights_version);
}

template <class V, class H>
void walk_event(V& v, H& h) {
  constexpr std::uint8_t finishes = 5;
  v.field("number", h.number), v.field("choice", h.choice), v.field("tokens", h.tokens);
  v.field("logprobs", h.logprobs), v.field("top_count", h.top_count);
  v.each("top", h.top, sizeof(std::int32_t) + sizeof(float),
         [](auto& w, auto& a) { w.field("token", a.token), w.field("logprob", a.logprob); });
  v.field("of_prompt", h.of_prompt), v.field("text", h.text),
      v.field("weights_version", h.weights_version);
  v.choice("finish", h.finish, finishes), v.field("error", h.error);
  v.field("usage_prompt", h.usage.prompt), v.field("usage_cached", h.usage.cached);
  v.field("usage_completion", h.usage.completion), v.field("embedding", h.embedding),
      v.field("queued", h.queued_us);
}

template <class V, class S>
void walk_statistics(V& v, S& s) {
  for (auto* n : {&s.steps, &s.running, &s.waiting, &s.prompt_tokens, &s.answer_tokens, &s.drafted,
                  &s.drafts_right, &s.preemptions, &s.finished_stop, &s.finished_length,
                  &s.cancelled, &s.failed})
    v.field("count", *n);
  v.field("runner_seconds", s.runner_seconds), v.field("step_seconds", s.step_seconds);
  for (auto* n : {&s.pages.free, &s.pages.cached, &s.pages.referenced, &s.pages.in_flight})
    v.field("pages", *n);
  v.field("tokens_asked", s.prefix.tokens_asked), v.field("tokens_found", s.prefix.tokens_found);
}

template <class V, class W>
void walk_view(V& v, W& view) {
  constexpr std::size_t least = 2 * sizeof(std::uint32_t) + 6 * sizeof(std::int64_t) + 1;
  walk_statistics(v, view.statistics);
  v.each("sequences", view.sequences, least, [](auto& w, auto& s) {
    w.field("request", s.request), w.field("choice", s.choice), w.field("running", s.running);
    w.field("prompt", s.prompt), w.field("known", s.known), w.field("computed", s.computed);
    w.field("found", s.found), w.field("preemptions", s.preemptions), w.field("pages", s.pages);
  });
  v.field("page_states", view.pages);
}

// The types of frames.
enum Type : std::uint8_t {
  hello = 1,
  submit,
  cancel,
  look,
  operate,
  ready = 64,
  accepted,
  refused,
  happened,
  counts,
  seen,
  operated
};

template <class V>
void walk_version(V& v, std::uint16_t& version) {
  std::uint32_t magic = wire_magic;
  v.field("magic", magic);
  if (magic != wire_magic)
    throw core::Error(core::Code::corrupt, "this is not our protocol").in("message");
  v.field("version", version);
}

template <class V, class M>
void walk(V& v, M& m) {
  using T = std::remove_const_t<M>;
  constexpr std::uint8_t codes = static_cast<std::uint8_t>(core::Code::internal) + 1;
  if constexpr (std::is_same_v<T, Hello> || std::is_same_v<T, Ready>) {
    std::uint16_t version = m.version;
    walk_version(v, version);
    if constexpr (V::reading) m.version = version;
    if constexpr (std::is_same_v<T, Ready>) walk_facts(v, m.facts);
  } else if constexpr (std::is_same_v<T, Submit>) {
    v.field("number", m.number);
    walk_question(v, m.question);
  } else if constexpr (std::is_same_v<T, Cancel> || std::is_same_v<T, Accepted>) {
    v.field("number", m.number);
  } else if constexpr (std::is_same_v<T, Refused>) {
    v.field("number", m.number), v.choice("code", m.code, codes);
    v.field("message", m.message), v.field("argument", m.argument), v.field("hint", m.hint);
  } else if constexpr (std::is_same_v<T, Happened>) {
    walk_event(v, m);
  } else if constexpr (std::is_same_v<T, Counts>) {
    walk_statistics(v, m.statistics);
  } else if constexpr (std::is_same_v<T, Operate>) {
    constexpr std::uint8_t kinds = 4;
    v.field("number", m.number), v.choice("kind", m.operation.kind, kinds);
    v.field("name", m.operation.name), v.field("path", m.operation.path);
  } else if constexpr (std::is_same_v<T, Operated>) {
    v.field("number", m.number), v.field("failed", m.failed), v.choice("code", m.code, codes);
    v.field("message", m.message), v.field("argument", m.argument), v.field("hint", m.hint);
    v.field("said", m.said);
  } else if constexpr (std::is_same_v<T, Seen>) {
    walk_view(v, m.view);
  }
}

template <class M>
void write_frame(std::uint8_t type, const M& message, std::string& out) {
  std::size_t mark = 0;
  begin_frame(out, type, mark);
  Writing v{WireWriter(out)};
  walk(v, message);
  end_frame(out, mark);
}

template <class M>
M read_frame(const Frame& frame) {
  M message;
  Reading v{WireReader(frame.payload)};
  walk(v, message);
  v.in.finish();
  return message;
}

[[noreturn]] void unknown(const Frame& frame) {
  throw core::Error(core::Code::corrupt, fmt::format("a message of type {}", frame.type))
      .in("message");
}

}  // namespace

// Encode and decode.
void encode(const Command& command, std::string& out) {
  static constexpr std::array types{hello, submit, cancel, look, operate};
  std::visit([&](const auto& m) { write_frame(types[command.index()], m, out); }, command);
}

void encode(const Report& report, std::string& out) {
  static constexpr std::array types{ready, accepted, refused, happened, counts, seen, operated};
  std::visit([&](const auto& m) { write_frame(types[report.index()], m, out); }, report);
}

Command decode_command(const Frame& frame) {
  switch (frame.type) {
    case hello: return read_frame<Hello>(frame);
    case submit: return read_frame<Submit>(frame);
    case cancel: return read_frame<Cancel>(frame);
    case look: return read_frame<Look>(frame);
    case operate: return read_frame<Operate>(frame);
    default: unknown(frame);
  }
}

Seen read_view(const Frame& frame) {
  auto seen = read_frame<Seen>(frame);
  const auto last = static_cast<std::uint8_t>(infer::PageState::scratch);
  if (std::ranges::any_of(seen.view.pages, [&](std::uint8_t state) { return state > last; }))
    throw core::Error(core::Code::corrupt, "no state of a page").in("message field 'page_states'");
  return seen;
}

Report decode_report(const Frame& frame) {
  switch (frame.type) {
    case ready: return read_frame<Ready>(frame);
    case accepted: return read_frame<Accepted>(frame);
    case refused: return read_frame<Refused>(frame);
    case counts: return read_frame<Counts>(frame);
    case seen: return read_view(frame);
    case operated: return read_frame<Operated>(frame);
    case happened: break;
    default: unknown(frame);
  }
  auto event = read_frame<Happened>(frame);
  const std::size_t n = event.tokens.size();
  const bool fits =
      (event.logprobs.empty() || event.logprobs.size() == n) && event.top_count >= 0 &&
      event.choice >= 0 &&
      (n == 0 ? event.top.empty()
              : event.top.size() % n == 0 &&
                    event.top.size() / n == static_cast<std::size_t>(event.top_count));
  if (!fits)
    throw core::Error(core::Code::corrupt, "lists of different lengths")
        .in("message field 'tokens'");
  return event;
}

Happened owned(std::uint64_t number, const infer::Event& e) {
  return {
      .number = number,
      .choice = e.choice,
      .tokens = {e.tokens.begin(), e.tokens.end()},
      .logprobs = {e.logprobs.begin(), e.logprobs.end()},
      .top = {e.top.begin(), e.top.end()},
      .top_count = e.tokens.empty() ? 0 : static_cast<std::int32_t>(e.top.size() / e.tokens.size()),
      .of_prompt = e.of_prompt,
      .text = std::string(e.text),
      .weights_version = e.weights_version,
      .finish = static_cast<std::uint8_t>(e.finish ? 1 + static_cast<int>(*e.finish) : 0),
      .error = e.error != nullptr ? e.error->what() : "",
      .usage = e.usage,
      .embedding = {e.embedding.begin(), e.embedding.end()},
      .queued_us = e.queued_us};
}

infer::Event Happened::event(const core::Error* error_of_it) const {
  return {
      .request = number,
      .choice = choice,
      .tokens = tokens,
      .logprobs = logprobs,
      .top = top,
      .top_count = top_count,
      .of_prompt = of_prompt,
      .text = text,
      .weights_version = weights_version,
      .finish = finish > 0 ? std::optional(static_cast<infer::Finish>(finish - 1)) : std::nullopt,
      .error = error_of_it,
      .embedding = embedding,
      .usage = usage,
      .queued_us = queued_us};
}

}  // namespace rose::serve
