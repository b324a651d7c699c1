// Write responses.

#include "rose/serve/response_form.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "rose/core/hash.h"

namespace rose::serve {

// Items and the response as they stand.
json::object ResponseForm::part(const Item& item) const {
  if (item.kind == Kind::thought) return {{"type", "reasoning_text"}, {"text", item.text}};
  json::object out{{"type", "output_text"}, {"text", item.text}, {"annotations", json::array()}};
  if (logprobs_) out["logprobs"] = logprob_entries(*head_.tokenizer, item.logprobs);
  return out;
}

json::object ResponseForm::item_json(const Item& item) const {
  json::object out{{"id", item.id}, {"status", item.status}};
  if (item.kind == Kind::call) {
    out["type"] = "function_call";
    out["call_id"] = item.call_id, out["name"] = item.name, out["arguments"] = item.text;
    return out;
  }
  const bool thought = item.kind == Kind::thought;
  out["type"] = thought ? "reasoning" : "message";
  if (thought)
    out["summary"] = json::array();
  else
    out["role"] = "assistant";
  json::array content;
  const bool announced = !open_ || &item != &items_.back() || !item.text.empty();
  if (announced) content.emplace_back(part(item));
  out["content"] = std::move(content);
  return out;
}

json::object ResponseForm::response(std::string_view status) const {
  json::object out{{"id", head_.id},
                   {"object", "response"},
                   {"created_at", head_.created},
                   {"status", status},
                   {"completed_at", completed_},
                   {"error", error_},
                   {"incomplete_details", nullptr},
                   {"model", head_.model}};
  if (status == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  json::array output;
  for (const Item& item : items_) output.emplace_back(item_json(item));
  out["output"] = std::move(output);
  for (const auto& [name, value] : echo_) out[name] = value;
  out["usage"] = usage_;
  return out;
}

// Open and close items.
void ResponseForm::say(std::string_view type, const json::object& event, std::string& out) {
  json::object whole{{"type", type}, {"sequence_number", number_++}};
  for (const auto& [name, value] : event) whole[name] = value;
  out += fmt::format("event: {}\ndata: {}\n\n", type, json::serialize(whole));
}

json::object ResponseForm::place(const Item& item) const {
  json::object out{{"item_id", item.id}, {"output_index", items_.size() - 1}};
  if (item.kind != Kind::call) out["content_index"] = 0;
  return out;
}

void ResponseForm::say_part(std::string_view type, const Item& item, std::string& out) {
  json::object event = place(item);
  event["part"] = part(item);
  say(type, event, out);
}

void ResponseForm::open(Item item, std::string& out) {
  close("completed", out);
  constexpr std::size_t digits = 24;
  const std::string name =
      core::sha256_hex(fmt::format("{}/{}", head_.id, items_.size())).substr(0, digits);
  const char* kind = item.kind == Kind::call ? "fc_" : item.kind == Kind::thought ? "rs_" : "msg_";
  item.id = kind + name;
  if (item.kind == Kind::call) item.call_id = "call_" + name;
  items_.push_back(std::move(item));
  open_ = true;
  say("response.output_item.added",
      {{"output_index", items_.size() - 1}, {"item", item_json(items_.back())}}, out);
  if (items_.back().kind != Kind::call) say_part("response.content_part.added", items_.back(), out);
}

void ResponseForm::close(const char* status, std::string& out) {
  if (!open_) return;
  Item& item = items_.back();
  if (item.kind == Kind::message && !unsaid_.empty()) grow(Kind::message, "", out);
  open_ = false;
  item.status = status;
  json::object done = place(item);
  if (item.kind == Kind::call) {
    done["arguments"] = item.text;
    say("response.function_call_arguments.done", done, out);
  } else {
    done["text"] = item.text;
    const bool thought = item.kind == Kind::thought;
    if (!thought) done["logprobs"] = logprob_entries(*head_.tokenizer, item.logprobs);
    say(thought ? "response.reasoning_text.done" : "response.output_text.done", done, out);
    say_part("response.content_part.done", item, out);
  }
  say("response.output_item.done", {{"output_index", items_.size() - 1}, {"item", item_json(item)}},
      out);
}

// Let items grow.
void ResponseForm::grow(Kind kind, const std::string& text, std::string& out) {
  if (!open_ || items_.back().kind != kind) open({.kind = kind}, out);
  Item& item = items_.back();
  item.text += text;
  json::object event = place(item);
  event["delta"] = text;
  if (kind == Kind::message) {
    event["logprobs"] = logprob_entries(*head_.tokenizer, unsaid_);
    item.logprobs.insert(item.logprobs.end(), unsaid_.begin(), unsaid_.end());
    unsaid_.clear();
  }
  say(kind == Kind::thought   ? "response.reasoning_text.delta"
      : kind == Kind::message ? "response.output_text.delta"
                              : "response.function_call_arguments.delta",
      event, out);
}

std::string ResponseForm::opening() {
  std::string out;
  say("response.created", {{"response", response("in_progress")}}, out);
  say("response.in_progress", {{"response", response("in_progress")}}, out);
  return out;
}

std::string ResponseForm::add(const ChoiceDelta& delta) {
  std::string out;
  unsaid_.insert(unsaid_.end(), delta.logprobs.begin(), delta.logprobs.end());
  for (const MessageDelta& part : delta.parts) {
    if (!part.reasoning.empty()) grow(Kind::thought, part.reasoning, out);
    if (!part.content.empty()) grow(Kind::message, part.content, out);
    for (const MessageDelta::Call& call : part.calls) {
      const bool same =
          open_ && items_.back().kind == Kind::call && items_.back().call == call.index;
      if (!same) open({.kind = Kind::call, .name = call.name, .call = call.index}, out);
      if (!call.arguments.empty()) grow(Kind::call, call.arguments, out);
    }
  }
  if (delta.finish == "length") cut_short_ = true;
  return out;
}

// End well, or badly.
void ResponseForm::use(const UsageSum& usage) {
  std::size_t thought = 0;
  for (const Item& item : items_)
    if (item.kind == Kind::thought) thought += head_.tokenizer->encode(item.text, false).size();
  usage_ = json::object{
      {"input_tokens", usage.prompt},
      {"input_tokens_details", {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.completion},
      {"output_tokens_details", {{"reasoning_tokens", thought}}},
      {"total_tokens", usage.prompt + usage.completion}};
}

std::string ResponseForm::closing(const UsageSum& usage) {
  std::string out;
  if (items_.empty() || (items_.back().kind == Kind::thought && !unsaid_.empty()))
    open({.kind = Kind::message}, out);
  close(cut_short_ ? "incomplete" : "completed", out);
  use(usage);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  if (!cut_short_) completed_ = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const char* status = cut_short_ ? "incomplete" : "completed";
  say(fmt::format("response.{}", status), {{"response", response(status)}}, out);
  return out;
}

std::string ResponseForm::failure(const ApiError& error) {
  std::string out;
  if (open_) items_.back().status = "incomplete";
  open_ = false;
  error_ = json::object{{"code", "server_error"}, {"message", error.what()}};
  say("response.failed", {{"response", response("failed")}}, out);
  return out;
}

json::object ResponseForm::whole(const UsageSum& usage) {
  closing(usage);
  return response(cut_short_ ? "incomplete" : "completed");
}

}  // namespace rose::serve
