// A conversation to learn from.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/json.h"

namespace rose::trainer {

/// Messages as a template takes them, and which of the answers are to be learnt.
struct Conversation {
  core::json::array messages, tools;
  std::vector<std::uint8_t> learnt;  ///< of each message; 1 for an answer that is to be learnt
  std::string where;                 ///< file and line: "data.jsonl:12"
};

/// Throws core::Error: corrupt for what is not JSON, invalid_argument for a role that does not exist, a system message
/// that is not the first, an answer without words, a conversation without an answer or with a last question.
Conversation parse_conversation(std::string_view line, const std::string& where);

/// The same for a list of messages. `answered`: the last of them must be an answer.
Conversation conversation_of(const core::json::array& messages, std::string where, bool answered);

/// The lines of a file that are not blank, with their places. Throws core::Error (not_found, and corrupt when there is none).
std::vector<std::pair<std::string, std::string>> json_lines(const std::filesystem::path& file);

}  // namespace rose::trainer
