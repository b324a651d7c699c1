// Let a model choose among endings.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/text/tokenizer.h"
#include "rose/trainer/evaluate/scorer.h"

namespace rose::trainer {

/// One question: which ending continues the context?
struct ChoiceItem {
  std::string group{}, context{};
  std::vector<std::string> endings{};
  std::size_t label = 0;  ///< of the right one
};

/// One JSON object a line with context (or ctx), endings (or choices), label and perhaps group: HellaSwag's own files are read.
/// Throws core::Error (corrupt) naming `where` and the line.
std::vector<ChoiceItem> parse_choices(std::string_view lines, std::string_view where);

enum class Division : std::uint8_t { none, tokens, bytes };

struct ChoiceScore {
  std::vector<Score> endings{};
  std::size_t label = 0;
  bool straddled = false;  ///< context and ending together are cut into other tokens than apart

  /// The ending with the highest log-probability after the division; of equal ones the first.
  std::size_t choice(Division division) const;
  bool right(Division division) const { return choice(division) == label; }
};

struct ChoiceOptions {
  std::int64_t context =
      1024;  ///< longest context and ending together; longer contexts lose their beginning
  std::int64_t most = 4096;  ///< tokens of a forward pass
  bool blind = false;        ///< leave the contexts out: what the endings alone give away
};

std::vector<ChoiceScore> score_choices(const LogProbs& log_probs, const text::Tokenizer& tokenizer,
                                       std::span<const ChoiceItem> items,
                                       const ChoiceOptions& options);

std::size_t count_right(std::span<const ChoiceScore> scores, Division division);

}  // namespace rose::trainer
