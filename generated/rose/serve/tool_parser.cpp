// Find tool calls in text as it comes.

#include "rose/serve/tool_parser.h"

#include <boost/json.hpp>
#include <utility>

namespace rose::serve {
namespace {

constexpr std::string_view open_call = "<tool_call>", close_call = "</tool_call>",
                           open_thought = "<think>", close_thought = "</think>";

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

// Tell marks from text.
ToolParser::ToolParser(ParserOptions options)
    : options_(options), place_(options.reasoning ? Place::opening : Place::content) {
  if (options_.bare) begin_call();
}

void MessageDelta::add(MessageDelta later) {
  content += later.content;
  reasoning += later.reasoning;
  for (Call& call : later.calls) {
    if (calls.empty() || calls.back().index != call.index)
      calls.push_back(std::move(call));
    else
      calls.back().arguments += call.arguments;
  }
}

MessageDelta ToolParser::push(std::string_view text) {
  MessageDelta out;
  for (const char c : text) step(c, out);
  return out;
}

MessageDelta ToolParser::finish() {
  MessageDelta out;
  if (place_ == Place::call) give_up(out);
  flush_mark(out);
  if (place_ == Place::content && calls_ == 0) out.content += std::exchange(space_, {});
  return out;
}

void ToolParser::step(char c, MessageDelta& out) {
  switch (place_) {
    case Place::opening: return match(c, open_thought, out);
    case Place::thinking: return match(c, close_thought, out);
    case Place::content:
      if (options_.tools && !options_.bare) return match(c, open_call, out);
      return options_.bare ? void() : plain(c, out);
    case Place::call: return scan(c, out);
    case Place::after_call: return match(c, close_call, out);
  }
}

void ToolParser::match(char c, std::string_view mark, MessageDelta& out) {
  held_ += c;
  if (mark.starts_with(held_)) {
    if (held_.size() < mark.size()) return;
    held_.clear();
    switch (place_) {
      case Place::opening: place_ = Place::thinking; return;
      case Place::content: return begin_call();
      default: place_ = Place::content; return;
    }
  }
  held_.pop_back();
  if (place_ == Place::opening) {  // no thoughts: everything so far is read again as an answer
    if (held_.empty() && is_space(c)) return plain(c, out);
    place_ = Place::content;
    for (const char one : std::exchange(held_, {})) step(one, out);
    return step(c, out);
  }
  const bool began = !held_.empty();
  flush_mark(out);
  if (began) return step(c, out);
  plain(c, out);
}

void ToolParser::flush_mark(MessageDelta& out) {
  for (const char c : std::exchange(held_, {})) plain(c, out);
}

void ToolParser::plain(char c, MessageDelta& out) {
  if (place_ == Place::thinking) {
    out.reasoning += c;
    return;
  }
  if (!options_.tools) {
    out.content += c;
    return;
  }
  if (place_ == Place::after_call)
    return;  // between a call's end and its mark there is nothing to say
  if (is_space(c)) {
    space_ += c;
    return;
  }
  if (calls_ > 0 && !options_.parallel) return;
  out.content += std::exchange(space_, {});
  out.content += c;
}

// Follow the outline of an object.
void ToolParser::begin_call() {
  place_ = Place::call;
  space_.clear();
  part_ = Part::open;
  raw_.clear(), key_.clear(), name_.clear(), waiting_.clear();
  depth_ = 0;
  in_string_ = escaped_ = named_ = argued_ = announced_ = false;
}

void ToolParser::scan(char c, MessageDelta& out) {
  raw_ += c;
  if (part_ == Part::value) return value(c, out);
  if (in_string_) {  // a key
    if (escaped_)
      escaped_ = false;
    else if (c == '\\')
      escaped_ = true;
    else if (c == '"')
      in_string_ = false, part_ = Part::colon;
    else
      key_ += c;
    return;
  }
  if (is_space(c)) return;
  switch (part_) {
    case Part::open:
      if (c != '{') return give_up(out);
      part_ = Part::key;
      return;
    case Part::key:
      if (c != '"') return give_up(out);
      key_.clear();
      in_string_ = true;
      return;
    case Part::colon:
      if (c != ':') return give_up(out);
      part_ = Part::value;
      value_begin_ = raw_.size();
      return;
    case Part::comma:
      if (c == ',')
        part_ = Part::key;
      else if (c == '}')
        end_call(out);
      else
        give_up(out);
      return;
    default: return give_up(out);
  }
}

void ToolParser::value(char c, MessageDelta& out) {
  const bool arguments = key_ == "arguments" || key_ == "parameters";
  const bool ended_before =
      depth_ == 0 && !in_string_ && (c == ',' || c == '}');  // a number or a word
  if (ended_before) {
    raw_.pop_back();
    end_value(out);
    raw_ += c;
    if (place_ != Place::call) return;
    part_ = Part::comma;
    if (c == ',')
      part_ = Part::key;
    else
      end_call(out);
    return;
  }
  const bool blank = is_space(c) && !in_string_ && depth_ == 0;
  if (arguments && !blank && raw_[value_begin_] != '"') emit({&c, 1}, out);
  if (blank && raw_.size() == value_begin_ + 1) ++value_begin_;
  if (in_string_) {
    if (escaped_)
      escaped_ = false;
    else if (c == '\\')
      escaped_ = true;
    else if (c == '"')
      in_string_ = false;
    if (!in_string_ && depth_ == 0) end_value(out);
    return;
  }
  if (c == '"')
    in_string_ = true;
  else if (c == '{' || c == '[')
    ++depth_;
  else if ((c == '}' || c == ']') && --depth_ == 0)
    end_value(out);
}

// Announce a call, and end it.
void ToolParser::end_value(MessageDelta& out) {
  part_ = Part::comma;
  const std::string_view text = std::string_view(raw_).substr(value_begin_);
  const bool is_text = text.starts_with('"');
  const auto decoded = [&] {
    boost::system::error_code error;
    const boost::json::value parsed = boost::json::parse(text, error);
    return !error && parsed.is_string() ? std::string(parsed.get_string()) : std::string(text);
  };
  if (key_ == "name" && is_text && !named_) {
    name_ = decoded();
    named_ = true;
    emit({}, out);
  } else if (key_ == "arguments" || key_ == "parameters") {
    if (is_text) emit(decoded(), out);
    argued_ = true;
  }
}

void ToolParser::emit(std::string_view arguments, MessageDelta& out) {
  if (!argued_) waiting_ += arguments;  // the first arguments stand
  if (!named_ || (announced_ && waiting_.empty())) return;
  if (calls_ > 0 && !options_.parallel) return;
  const std::size_t index = calls_;
  if (out.calls.empty() || out.calls.back().index != index) out.calls.push_back({index, "", ""});
  if (!std::exchange(announced_, true)) out.calls.back().name = name_;
  out.calls.back().arguments += std::exchange(waiting_, {});
}

void ToolParser::end_call(MessageDelta& out) {
  if (!named_) return give_up(out);
  part_ = Part::closed;
  if (!argued_) emit("{}", out);
  if (announced_) ++calls_;
  place_ = options_.bare ? Place::content : Place::after_call;
}

// This was no call, or it was broken off. If the client has not heard of it yet it is content, as it was written.
void ToolParser::give_up(MessageDelta& out) {
  place_ = Place::content;
  if (announced_) {
    ++calls_;
    return;
  }
  out.content += options_.bare ? "" : open_call;
  out.content += std::exchange(raw_, {});
}

}  // namespace rose::serve
