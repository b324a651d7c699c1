#include "source.h"

#include <algorithm>

namespace tangle {

Span line_around(const Source& source, std::uint32_t offset) {
  const std::string_view text = source.text;
  const std::size_t at = std::min<std::size_t>(offset, text.size());
  const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = std::min(text.find('\n', at), text.size());
  return {&source, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

LineColumn locate(const Source& source, std::uint32_t offset) {
  const std::size_t at = std::min<std::size_t>(offset, source.text.size());
  const Span line = line_around(source, offset);
  LineColumn where;
  where.line += static_cast<std::uint32_t>(std::count(source.text.begin(), source.text.begin() + line.begin, '\n'));
  for (std::size_t i = line.begin; i < at; ++i) {
    if ((static_cast<unsigned char>(source.text[i]) & 0xC0) != 0x80) ++where.column;
  }
  return where;
}

}  // namespace tangle
