// Find tool calls in text as it comes.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rose::serve {

/// What a piece of text adds to a message.
struct MessageDelta {
  std::string content, reasoning;
  struct Call {
    std::size_t index = 0;
    std::string name;       ///< only in the first delta of a call
    std::string arguments;  ///< to be appended
  };
  std::vector<Call> calls;
  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
  void add(MessageDelta later);
};

struct ParserOptions {
  bool tools = false;      ///< look for <tool_call>
  bool bare = false;       ///< the text is one call without marks, as a grammar made it
  bool reasoning = false;  ///< a text that begins with <think> is thought until </think>
  bool parallel = true;    ///< false: after one call nothing more is taken
};

/// Hermes' and Qwen's form. The deltas of a text add up to the same message however it is cut.
class ToolParser {
 public:
  explicit ToolParser(ParserOptions options);
  MessageDelta push(std::string_view text);
  MessageDelta finish();  ///< gives out what was held back
  std::size_t calls() const { return calls_; }

 private:
  enum class Place { opening, thinking, content, call, after_call };
  enum class Part { open, key, colon, value, comma, closed };

  void step(char c, MessageDelta& out);
  void match(char c, std::string_view mark, MessageDelta& out);
  void plain(char c, MessageDelta& out);
  void flush_mark(MessageDelta& out);
  void begin_call();
  void scan(char c, MessageDelta& out);
  void value(char c, MessageDelta& out);
  void end_value(MessageDelta& out);
  void emit(std::string_view arguments, MessageDelta& out);
  void end_call(MessageDelta& out);
  void give_up(MessageDelta& out);

  ParserOptions options_;
  Place place_;
  std::string held_;   // of a mark that may be beginning
  std::string space_;  // white space that is content only if content follows
  std::size_t calls_ = 0;
  // The call that is being read.
  Part part_ = Part::open;
  std::string raw_, key_, name_, waiting_;
  std::size_t value_begin_ = 0;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, named_ = false, argued_ = false, announced_ = false;
};

}  // namespace rose::serve
