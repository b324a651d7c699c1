// Cut, encode, join.

#include "rose/trainer/data/encode.h"

namespace rose::trainer {

std::vector<std::string_view> pieces_of(std::string_view text, std::size_t size) {
  std::vector<std::string_view> pieces;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  while (text.size() > size) {
    std::size_t cut = text.find('\n', size - 1);
    while (cut != text.npos && cut + 1 < text.size() &&
           !(cut > 0 && text[cut - 1] > ' ' && text[cut - 1] < 0x7f && letter(text[cut + 1])))
      cut = text.find('\n', cut + 1);
    if (cut == text.npos || cut + 1 >= text.size()) break;
    pieces.push_back(text.substr(0, cut + 1));
    text.remove_prefix(cut + 1);
  }
  if (!text.empty()) pieces.push_back(text);
  return pieces;
}

std::vector<std::vector<std::int32_t>> encode_all(const text::Tokenizer& tokenizer,
                                                  std::span<const std::string_view> texts,
                                                  core::ThreadPool& pool) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 16;
  struct Piece {
    std::size_t text;
    std::string_view bytes;
    std::vector<std::int32_t> ids;
  };
  std::vector<Piece> pieces;
  for (std::size_t t = 0; t < texts.size(); ++t)
    for (const std::string_view piece : pieces_of(texts[t], piece_bytes))
      pieces.push_back({t, piece, {}});
  for_each_taken(pool, pieces.size(),
                 [&](std::size_t i) { tokenizer.encode(pieces[i].bytes, false, pieces[i].ids); });
  std::vector<std::vector<std::int32_t>> out(texts.size());
  for (const Piece& piece : pieces)
    out[piece.text].insert(out[piece.text].end(), piece.ids.begin(), piece.ids.end());
  return out;
}

}  // namespace rose::trainer
