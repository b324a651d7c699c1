// Messages as a compiler writes them: place, source line, caret, notes; all of them in one run.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "source.h"

namespace tangle {

enum class Severity { error, warning };
enum class MessageFormat { gcc, json, github };

struct Note {
  Span span;  ///< may be nowhere: then the note is a line of advice
  std::string text;
};

struct Message {
  Severity severity = Severity::error;
  std::string_view code;  ///< stable name of the kind, such as "undefined-chunk"
  Span span;
  std::string text;
  std::vector<Note> notes;

  Message& note(Span where, std::string words);
  /// A note that is advice; none when it is empty.
  Message& help(std::string words) { return words.empty() ? *this : note({}, std::move(words)); }
};

/// Collects messages. A reference that `error` returns stays valid.
class Diagnostics {
 public:
  Message& error(std::string_view code, Span span, std::string text);
  Message& warning(std::string_view code, Span span, std::string text);
  /// What `tangle check` refuses and `tangle emit` only warns about, so that a half-written chapter builds.
  Message& lint(std::string_view code, Span span, std::string text);

  /// Takes over the messages of another, after these.
  void append(Diagnostics&& other);

  void make_strict() { strict_ = true; }

  /// Forgets the warnings of one kind.
  void drop_warnings(std::string_view code);

  bool failed() const { return errors_ > 0; }
  const std::deque<Message>& messages() const { return messages_; }

  /// All messages in reading order. At most 100 are spelled out.
  std::string rendered(MessageFormat format) const;

 private:
  std::deque<Message> messages_;
  std::size_t errors_ = 0;
  bool strict_ = false;
};

}  // namespace tangle
