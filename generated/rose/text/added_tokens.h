// Find added tokens in a text, the leftmost and longest first.

#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "rose/text/vocab.h"

namespace rose::text {

class AddedTokens {
 public:
  /// Those of `vocab.added` whose `normalized` flag is the given one, in normal form if the
  /// vocabulary asks for it.
  AddedTokens(const Vocab& vocab, bool normalized);

  bool empty() const { return entries_.empty(); }

  struct Match {
    std::size_t begin, end;  ///< bytes of the text, stripped white space included
    std::size_t resume;      ///< where to search on: the end without that space
    const AddedToken*
        token;  ///< null when there is none from `from` on; then all three are text.size()
  };
  /// The first token at or after `from`; white space is stripped no further left than `floor`.
  /// Special tokens are passed over as text unless `parse_special`.
  Match find(std::string_view text, std::size_t from, std::size_t floor, bool parse_special) const;

 private:
  struct Entry {
    std::string content;
    AddedToken token;
  };
  const Entry* longest_at(std::string_view text) const;

  std::vector<Entry> entries_;          // sorted by content
  std::array<bool, 256> first_byte_{};  // of any content
};

}  // namespace rose::text
