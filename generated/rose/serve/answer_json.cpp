// Write answers as the API does.

#include "rose/serve/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "rose/core/hash.h"
#include "rose/core/utf8.h"

namespace rose::serve {

// Add deltas up.
void ChoiceSum::add(const ChoiceDelta& delta) {
  content += delta.message.content;
  reasoning += delta.message.reasoning;
  for (const auto& call : delta.message.calls) {
    while (calls.size() <= call.index) calls.push_back({calls.size(), "", ""});
    calls[call.index].name += call.name;
    calls[call.index].arguments += call.arguments;
  }
  logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  if (!delta.finish.empty()) finish = delta.finish;
}

void ChoiceDelta::add_part(MessageDelta part) {
  if (part.empty()) return;
  const auto alike = [](const MessageDelta& a, const MessageDelta& b) {
    return a.content.empty() == b.content.empty() && a.reasoning.empty() == b.reasoning.empty() &&
           a.calls.empty() == b.calls.empty();
  };
  message.add(part);
  if (!parts.empty() && alike(parts.back(), part))
    parts.back().add(std::move(part));
  else
    parts.push_back(std::move(part));
}

void ChoiceDelta::add(ChoiceDelta later) {
  if (later.parts.empty()) message.add(std::move(later.message));
  for (MessageDelta& part : later.parts) add_part(std::move(part));
  logprobs.insert(logprobs.end(), later.logprobs.begin(), later.logprobs.end());
  if (!later.finish.empty()) finish = std::move(later.finish);
}

double ChoiceSum::mean_logprob() const {
  const double sum =
      std::accumulate(logprobs.begin(), logprobs.end(), 0.0,
                      [](double all, const TokenLogprob& one) { return all + one.logprob; });
  return logprobs.empty() ? 0.0 : sum / static_cast<double>(logprobs.size());
}

std::string token_text(const text::Tokenizer& tokenizer, std::int32_t token) {
  const std::string_view bytes = tokenizer.bytes(token);
  if (core::is_utf8(bytes)) return std::string(bytes);
  std::string out;
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

json::array logprob_entries(const text::Tokenizer& tokenizer,
                            std::span<const TokenLogprob> logprobs) {
  const auto one_logprob = [&](std::int32_t token, float logprob) -> json::object {
    json::array bytes;
    for (const char c : tokenizer.bytes(token)) bytes.emplace_back(static_cast<unsigned char>(c));
    return {
        {"token", token_text(tokenizer, token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
  };
  json::array content;
  for (const TokenLogprob& one : logprobs) {
    json::object entry = one_logprob(one.token, one.logprob);
    json::array top;
    for (const auto& other : one.top) top.emplace_back(one_logprob(other.token, other.logprob));
    entry["top_logprobs"] = std::move(top);
    content.emplace_back(std::move(entry));
  }
  return content;
}

namespace {

// Log-probabilities in both forms.
json::value chat_logprobs(const AnswerHead& head, const std::vector<TokenLogprob>& logprobs) {
  if (!head.logprobs) return nullptr;
  return json::object{{"content", logprob_entries(*head.tokenizer, logprobs)},
                      {"refusal", nullptr}};
}

std::size_t characters(std::string_view bytes) {
  return static_cast<std::size_t>(std::ranges::count_if(
      bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

// JSON has no infinity; this is what OpenAI writes for a token that cannot come.
constexpr float impossible = -9999.0f;

json::value text_logprobs(const AnswerHead& head, const std::vector<TokenLogprob>& logprobs,
                          std::size_t offset) {
  if (!head.logprobs) return nullptr;
  json::array tokens, values, tops, offsets;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const TokenLogprob& one = logprobs[i];
    tokens.emplace_back(token_text(*head.tokenizer, one.token));
    const bool unknown = i == 0 && offset == 0 && one.logprob == 0.0f &&
                         one.top.empty();  // nothing stands before the first token
    values.push_back(unknown ? json::value(nullptr) : json::value(one.logprob));
    json::object top;
    for (const auto& other : one.top)
      top[token_text(*head.tokenizer, other.token)] = std::max(other.logprob, impossible);
    tops.push_back(unknown ? json::value(nullptr) : json::value(std::move(top)));
    offsets.emplace_back(offset);
    offset += characters(head.tokenizer->bytes(one.token));
  }
  return json::object{{"tokens", std::move(tokens)},
                      {"token_logprobs", std::move(values)},
                      {"top_logprobs", std::move(tops)},
                      {"text_offset", std::move(offsets)}};
}

std::size_t characters_of(const AnswerHead& head, const std::vector<TokenLogprob>& logprobs,
                          std::size_t n) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += characters(head.tokenizer->bytes(logprobs[i].token));
  return sum;
}

// A message, and what adds to one.
std::string call_id(const AnswerHead& head, int choice, std::size_t index) {
  constexpr std::size_t digits = 24;
  return "call_" +
         core::sha256_hex(fmt::format("{}/{}/{}", head.id, choice, index)).substr(0, digits);
}

json::object whole_message(const AnswerHead& head, const ChoiceSum& sum) {
  const bool silent = sum.content.empty() && !sum.calls.empty();
  json::object message{{"role", "assistant"},
                       {"content", silent ? json::value(nullptr) : json::value(sum.content)},
                       {"refusal", nullptr}};
  if (!sum.reasoning.empty()) message["reasoning_content"] = sum.reasoning;
  json::array calls;
  for (const auto& call : sum.calls)
    calls.push_back({{"id", call_id(head, sum.index, call.index)},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

json::object message_delta(const AnswerHead& head, const ChoiceDelta& delta) {
  json::object out;
  if (!delta.message.content.empty()) out["content"] = delta.message.content;
  if (!delta.message.reasoning.empty()) out["reasoning_content"] = delta.message.reasoning;
  json::array calls;
  for (const auto& call : delta.message.calls) {
    json::object entry{{"index", call.index}};
    json::object function{{"arguments", call.arguments}};
    if (!call.name.empty()) {
      entry["id"] = call_id(head, delta.index, call.index);
      entry["type"] = "function";
      function["name"] = call.name;
    }
    entry["function"] = std::move(function);
    calls.emplace_back(std::move(entry));
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

json::value reason(const std::string& finish) {
  return finish.empty() ? json::value(nullptr) : json::value(finish);
}

json::object usage_json(const UsageSum& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

}  // namespace

// Chunks, and the whole.
json::object envelope(const AnswerHead& head, bool chunk) {
  const bool chat = head.style == Ask::Style::chat;
  return {{"id", head.id},
          {"object", !chat   ? "text_completion"
                     : chunk ? "chat.completion.chunk"
                             : "chat.completion"},
          {"created", head.created},
          {"model", head.model}};
}

json::object role_chunk(const AnswerHead& head, int index) {
  json::object out = envelope(head, true);
  out["choices"] = json::array{{{"index", index},
                                {"delta", {{"role", "assistant"}, {"content", ""}}},
                                {"logprobs", nullptr},
                                {"finish_reason", nullptr}}};
  if (head.null_usage) out["usage"] = nullptr;
  return out;
}

json::object delta_chunk(const AnswerHead& head, const ChoiceDelta& delta, const ChoiceSum& sum) {
  if (head.style == Ask::Style::generate)
    return {{"text", delta.message.content}, {"finish_reason", reason(delta.finish)}};
  json::object out = envelope(head, true);
  json::object choice{{"index", delta.index}};
  if (head.style == Ask::Style::chat) {
    choice["delta"] = message_delta(head, delta);
    choice["logprobs"] =
        delta.logprobs.empty() ? json::value(nullptr) : chat_logprobs(head, delta.logprobs);
  } else {
    choice["text"] = delta.message.content;
    const std::size_t before = sum.logprobs.size() - delta.logprobs.size();
    choice["logprobs"] =
        delta.logprobs.empty()
            ? json::value(nullptr)
            : text_logprobs(head, delta.logprobs, characters_of(head, sum.logprobs, before));
  }
  choice["finish_reason"] = reason(delta.finish);
  out["choices"] = json::array{std::move(choice)};
  if (head.null_usage) out["usage"] = nullptr;
  return out;
}

json::object usage_chunk(const AnswerHead& head, const UsageSum& usage) {
  json::object out = envelope(head, true);
  out["choices"] = json::array();
  out["usage"] = usage_json(usage);
  return out;
}

json::object whole_answer(const AnswerHead& head, const std::vector<const ChoiceSum*>& choices,
                          const UsageSum& usage) {
  if (head.style == Ask::Style::generate)
    return {{"text", choices.at(0)->content},
            {"finish_reason", reason(choices[0]->finish)},
            {"usage", usage_json(usage)}};
  json::object out = envelope(head, false);
  json::array list;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const ChoiceSum& sum = *choices[i];
    json::object choice{{"index", i}};
    if (head.style == Ask::Style::chat) {
      choice["message"] = whole_message(head, sum);
      choice["logprobs"] = chat_logprobs(head, sum.logprobs);
    } else {
      choice["text"] = sum.content;
      choice["logprobs"] = text_logprobs(head, sum.logprobs, 0);
    }
    choice["finish_reason"] = reason(sum.finish);
    list.emplace_back(std::move(choice));
  }
  out["choices"] = std::move(list);
  out["usage"] = usage_json(usage);
  return out;
}

}  // namespace rose::serve
